"""One GPU for a server and the evaluator: they take turns by the device's lock, so that nothing runs beside the clock.

An evaluation holds the device's lock from correctness to timing (eval_harness/judge/device_lock.py). The server is one
more user of that lock: GpuTurns holds it while the server generates. When somebody waits for it, the server is paused
(its requests freeze where they are), the lock is let go, and taken back when nobody wants it; then the server goes on.
So tracing, matching and compiling overlap with generation, and device work never does. Where the kernel does not say
who waits for a lock, the server is paused for as long as any evaluation is under way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_harness.gpu_sharing import YIELDING
from eval_harness.judge.device_lock import is_waited_for, lock_path, open_lock
from training.serve import Pausable

POLL_S = 0.02
"""How often the lock is looked at: what an evaluation may wait for the pause to begin."""
LET_GO_S = 0.05
"""After letting go, before the lock is wanted back: whoever was woken needs a moment to take it."""


@dataclass
class TurnCounts:
    """How a GPU was shared, for the run's record."""

    num_pauses: int = 0
    paused_s: float = 0.0
    """During which the evaluator had the GPU."""
    serving_s: float = 0.0
    """During which the server had it."""


class GpuTurns:
    """Holds the locks of devices for a server, in a thread of its own, until close.

    A server that fails to pause is the end of the run, not of right timings: the error is kept, and the lock is let go
    only if on_failure has stopped the server.
    """

    def __init__(
        self,
        devices: Sequence[str],
        server: Pausable,
        *,
        num_under_way: Callable[[], int] = lambda: 0,
        on_failure: Callable[[], bool] = lambda: False,
    ) -> None:
        """devices: shared ones, by their names here. num_under_way: evaluations, where waits cannot be seen.

        on_failure: called when the server cannot be paused or does not go on; True if nothing of it runs any more.
        """
        self._paths = list(dict.fromkeys(lock_path(device) for device in devices))
        self._server, self._num_under_way, self._on_failure = server, num_under_way, on_failure
        self.counts = TurnCounts()
        self.error: Exception | None = None
        self._closed = threading.Event()
        self._descriptors: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True, name="gpu-turns")

    def take(self) -> None:
        """Take the locks for the first time, before the server touches the GPU; waits for evaluations that run."""
        self._descriptors = [open_lock(path) for path in self._paths]
        self._take_all()

    def start(self) -> None:
        """Begin to give turns; the server is ready. Raises what its pause raises: a server without one is told now."""
        self._server.pause()
        self._server.resume()
        self._thread.start()

    def close(self) -> None:
        """Let go for good; the server is left as it is."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
        for descriptor in self._descriptors:
            os.close(descriptor)  # with it the lock
        self._descriptors = []

    def _run(self) -> None:
        since = time.monotonic()
        try:
            while not self._closed.wait(POLL_S):
                if not self._is_wanted():
                    continue
                self._server.pause()
                now = time.monotonic()
                self.counts.serving_s += now - since
                self._let_go()
                self._closed.wait(LET_GO_S)
                self._take_all()
                since = time.monotonic()
                self.counts.num_pauses += 1
                self.counts.paused_s += since - now
                self._server.resume()
        except Exception as error:
            self.error = error
            if self._on_failure():
                self._let_go()
        self.counts.serving_s += time.monotonic() - since

    def _is_wanted(self) -> bool:
        waits = [is_waited_for(path) for path in self._paths]
        if all(wait is None for wait in waits):
            return self._num_under_way() > 0
        return any(waits)

    def _let_go(self) -> None:
        for descriptor in self._descriptors:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _take_all(self) -> None:
        """Never waits inside the kernel: whoever else waits goes first, and close is heard."""
        for path, descriptor in zip(self._paths, self._descriptors, strict=True):
            while not self._closed.is_set():
                if is_waited_for(path) is None and self._thread.ident is not None and self._num_under_way() > 0:
                    time.sleep(POLL_S)  # waits cannot be seen: until no evaluation is under way
                    continue
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(POLL_S)


@contextlib.contextmanager
def marked_as_yielding(pid: int | None) -> Iterator[None]:
    """Says to the evaluator that a process and all below it leave the GPU alone while it times."""
    if pid is None:
        yield
        return
    mark = Path(tempfile.gettempdir()) / f"{YIELDING}{pid}"
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)
