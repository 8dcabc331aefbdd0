"""The judge's handle on one worker: ask, time out, watch, kill.

A worker's failure while it runs a candidate is data (WorkerFailure). How a worker is started is in zygote_handle.py.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from eval_harness.judge.answers import nonsense
from eval_harness.judge.output import OutputReader
from eval_harness.judge.watchdog import MemoryWatchdog
from eval_harness.process_tree import ProcessHandle, descendants, kill_below, stopped_below
from eval_harness.protocol import Channel, ChannelClosedError, ChannelError, ChannelTimeoutError

MAX_ANSWER_BYTES = 8 << 20
"""Answers are descriptions; tensors travel in memory files. JSON takes some twenty times its length when it is read."""
DEATH_WAIT_S = 3.0
"""Between the end of a worker's channel and the end of its process, where both have one cause."""
_TICKET_BITS = 48
_SAID_KINDS = frozenset({"compile", "runtime", "oom", "not-plain"})


class WorkerFailure(Exception):
    """A request to a worker did not succeed.

    kind: "compile", "runtime", "oom", "not-plain" (the worker says so), "timeout", "died" (crashed, exited, spoke
    nonsense), or "killed": ended by a SIGKILL that the judge did not send, and maybe nor did the candidate (blame.py).
    """

    def __init__(self, kind: str, message: str, role: str = "candidate") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.role = role
        """Whose: "candidate" or "reference"."""


class Worker:
    """One worker process as the judge sees it."""

    def __init__(
        self, role: str, channel: Channel, pid: int, output: OutputReader, status_of: Callable[[int], int | None]
    ) -> None:
        """pid: of the process that waits outside the namespaces; it ends as the worker ends. status_of asks the
        zygote."""
        self.role = role
        self._channel = channel
        self.pid = pid
        self._status_of = status_of
        self._output = output
        self._outer = ProcessHandle(pid)
        self._inner: ProcessHandle | None = None
        self._watchdog: MemoryWatchdog | None = None
        self._ended_by: WorkerFailure | None = None
        self._op, self._ticket = "", 0
        self.deadline: float | None = None
        """time.monotonic() after which it has no time left for anything; shortens every time-out."""
        self.alive = True
        self.confinement: dict[str, str] = {}

    def find_inner(self) -> None:
        """Remember the process inside the namespaces; to be called before it runs anything of a candidate's."""
        with contextlib.suppress(OSError):
            below = descendants(self.pid)
            self._inner = ProcessHandle(below[0]) if below else None

    def watch_memory(self, limit_share: float) -> None:
        """From now on it is killed if it holds more than this share of the memory available now."""
        self._watchdog = MemoryWatchdog(self.pid, limit_share, self._end_for_excess)

    def ask(self, op: str, *, timeout_s: float, descriptors: tuple[int, ...] = (), **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises WorkerFailure; after "timeout" and "died" it is gone."""
        self.post(op, timeout_s=timeout_s, descriptors=descriptors, **fields)
        return self.wait(timeout_s=timeout_s)

    def post(self, op: str, *, timeout_s: float, descriptors: tuple[int, ...] = (), **fields: Any) -> None:
        if not self.alive:
            raise self._failure("died", "the process is gone")
        timeout_s = self._shortened(timeout_s)
        # no answer can lie ready before its question was asked
        self._op, self._ticket = op, secrets.randbits(_TICKET_BITS)
        try:
            self._channel.send({"op": op, "ticket": self._ticket, **fields}, descriptors, timeout_s=timeout_s)
        except ChannelError as error:
            raise self._lost(error, timeout_s) from None

    def wait(self, *, timeout_s: float) -> dict[str, Any]:
        timeout_s = self._shortened(timeout_s)
        try:
            answer, descriptors = self._channel.receive(timeout_s=timeout_s, max_bytes=MAX_ANSWER_BYTES)
            for descriptor in descriptors:
                os.close(descriptor)
            if answer.get("ticket") != self._ticket:
                raise ChannelError("it answered something that was not asked")
            if answer.get("ok") is True and (fault := nonsense(self._op, answer)):
                raise ChannelError(fault)
        except ChannelError as error:
            raise self._lost(error, timeout_s) from None
        if answer.get("ok") is not True:
            kind = str(answer.get("kind"))
            raise self._failure(kind if kind in _SAID_KINDS else "runtime", str(answer.get("message", ""))[:4000])
        return answer

    def _shortened(self, timeout_s: float) -> float:
        if self.deadline is None:
            return timeout_s
        return max(min(timeout_s, self.deadline - time.monotonic()), 0.001)

    def _lost(self, error: ChannelError, timeout_s: float) -> WorkerFailure:
        if isinstance(error, ChannelTimeoutError):
            self.kill()
            failure = self._failure("timeout", f"no answer within {timeout_s:.0f} s; the process was killed")
        elif isinstance(error, ChannelClosedError):
            ended = self._outer.has_ended(timeout_s=DEATH_WAIT_S if self._inner_has_ended() else 0.0)
            status = self._status_of(self.pid) if ended else None
            self.kill()
            failure = self._failure("killed" if status == -signal.SIGKILL else "died", _death(status))
        else:
            self.kill()
            failure = self._failure("died", f"{error}; the process was killed")
        return self._ended_by or failure

    def _failure(self, kind: str, message: str) -> WorkerFailure:
        return WorkerFailure(kind, message, self.role)

    def _inner_has_ended(self) -> bool:
        return self._inner is None or self._inner.has_ended(timeout_s=0.5)

    def _end_for_excess(self, kind: str, message: str) -> None:
        """From the watchdog's thread: whoever waits for the worker sees its channel end."""
        self._ended_by = self._failure(kind, f"{message}; the process was killed")
        self._kill_inside()

    @contextlib.contextmanager
    def held_still(self) -> Iterator[None]:
        """Nothing of it runs inside the context, and nothing can be asked of it: eager is measured alone."""
        if self.alive:
            with stopped_below(self.pid):
                yield
        else:
            yield

    def output(self) -> str:
        """What it printed so far, clipped; text only."""
        return self._output.text()

    def kill(self) -> None:
        """SIGKILL to everything inside. Does not wait: has_ended() does."""
        if self.alive:
            self.alive = False
            if self._watchdog:
                self._watchdog.stop()
            self._kill_inside()
            self._channel.close()
            self._output.close()

    def _kill_inside(self) -> None:
        """The process outside ends by itself then, after it has removed what was left behind."""
        if self._inner is not None:
            self._inner.send(signal.SIGKILL)
        if self._inner is None or self.confinement.get("pid-namespace") != "on":
            kill_below(self.pid)
        self._outer.send(signal.SIGCONT)
        self._outer.send(signal.SIGTERM)

    def has_ended(self, *, timeout_s: float) -> bool:
        """Whether nothing of a killed worker runs any more, with SIGKILL to all of it when the time is half over."""
        for wait_s in (timeout_s / 2, timeout_s / 2):
            inner_ended = self._inner is None or self._inner.has_ended(timeout_s=wait_s)
            if inner_ended and self._outer.has_ended(timeout_s=wait_s):
                for handle in (self._inner, self._outer):
                    if handle is not None:
                        handle.close()
                return True
            kill_below(self.pid)
            self._outer.send(signal.SIGKILL)
        return False


def _death(status: int | None) -> str:
    if status is None:
        return "the process ended without an answer"
    if status < 0:
        with contextlib.suppress(ValueError):  # a real-time signal has no name
            return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process was ended by signal {-status}"
    if status > 128:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(status - 128).name}"
    return f"the process exited with status {status} without an answer"
