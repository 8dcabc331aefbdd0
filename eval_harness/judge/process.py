"""JudgeProcess: the supervisor's handle on a judge: start, ask, time out, kill. Loads without torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.graph import MalformedGraphError
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import DeviceLostError, HarnessError, JudgeError, ReferenceFailedError
from eval_harness.presets import EvaluationProtocol
from eval_harness.process_tree import ProcessHandle, kill_below
from eval_harness.protocol import Channel, ChannelError
from eval_harness.verdict import Verdict

START_TIMEOUT_S = 180.0
ZYGOTE_END_S = 5.0
GRACE_S = 120.0
"""Beyond the task's own limit: loading, tracing, comparing."""
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (HarnessError, JudgeError, ReferenceFailedError, DeviceLostError, MalformedGraphError)
}


class JudgeProcess:
    """One judge for one device. Not thread-safe: one evaluation at a time."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._channel: Channel | None = None
        self._process: subprocess.Popen | None = None
        self._zygote: ProcessHandle | None = None

    @property
    def is_started(self) -> bool:
        """Whether there is a living process to ask; one that died while idle is nobody's failure."""
        process = self._process
        return self._channel is not None and process is not None and process.poll() is None

    def interrupt(self) -> None:
        """End the process from any thread: the evaluation that waits for it fails with JudgeError."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    def start(self) -> None:
        """Start the judge and wait until it serves. Raises HarnessError: no candidate had a part in it."""
        ours, theirs = Channel.pair()
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *(path for path in sys.path if path and path != root)]
        code = f"from eval_harness.judge.__main__ import main; main({theirs.fileno()}, {self.device!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            pass_fds=(theirs.fileno(),),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._channel = ours
        try:
            ready, _ = ours.receive(timeout_s=START_TIMEOUT_S)
        except ChannelError as error:
            self.kill()
            raise HarnessError(f"the judge did not start ({error}); run `passwright doctor`") from None
        if not ready.get("ready"):
            self.kill()
            raise HarnessError(f"the judge did not start: {ready.get('error')}")
        with contextlib.suppress(OSError):
            self._zygote = ProcessHandle(int(ready["zygote_pid"]))

    def evaluate(
        self,
        subject: Candidate | str,
        task: Task,
        protocol: EvaluationProtocol,
        *,
        seed: int,
        progress: Callable[[str], None] | None = None,
    ) -> Verdict:
        """One evaluation. Raises HarnessError, or MalformedGraphError for the task's own files.

        After a JudgeError the process is gone and start() makes a fresh one.
        """
        if not self.is_started:
            self.kill()
            self.start()
        assert self._channel is not None
        request: dict[str, Any] = {
            "task": {
                "task_id": task.task_id,
                "graphs": [{"name": graph.name, "files": dict(graph.files)} for graph in task.graphs],
            },
            "protocol": protocol.model_dump(),
            "seed": seed,
        }
        if isinstance(subject, Candidate):
            request["candidate"] = dict(subject.files)
        else:
            request["baseline"] = subject
        timeout_s = protocol.task_timeout_s + protocol.graph_timeout_s + GRACE_S
        try:
            self._channel.send(request)
            while True:
                answer, _ = self._channel.receive(timeout_s=timeout_s)
                if "progress" not in answer:
                    break
                if progress:
                    progress(answer["progress"])
        except ChannelError as error:
            self.kill()
            raise JudgeError(f"the judge was lost: {error}") from None
        if "verdict" in answer:
            return Verdict.model_validate(answer["verdict"])
        raise _KINDS.get(answer.get("kind", ""), HarnessError)(str(answer.get("error")))

    def close(self) -> None:
        """Let the judge end its children and go."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10)
        self.kill()

    def kill(self) -> None:
        """End the judge at once, and see to it that nothing below it lives on."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._zygote is not None:
            # it sees the closed channel and ends the workers, unless it hangs or was stopped itself
            if not self._zygote.has_ended(timeout_s=ZYGOTE_END_S):
                kill_below(self._zygote.pid)
                self._zygote.send(signal.SIGKILL)
            self._zygote.close()
            self._zygote = None
