"""The judge's handles on the zygote and on the workers it forks: start, ask, time out, kill.

A worker's failure while it runs a candidate is data (WorkerFailure); a failure of the zygote is ours (HarnessError).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.protocol import Channel, ChannelClosedError, ChannelError, ChannelTimeoutError

START_TIMEOUT_S = 120.0
KEPT_OUTPUT_BYTES = 64 << 10

_PASSED_ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES", "OPENBLAS_CORETYPE", "VIRTUAL_ENV", "CC", "CXX", "TRITON_PTXAS_PATH",
)  # fmt: skip


class WorkerFailure(Exception):
    """A request to a worker did not succeed. kind: "compile", "runtime", "oom", "timeout" or "died"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Worker:
    """One worker process as the judge sees it."""

    def __init__(self, zygote: Zygote, channel: Channel, pid: int, output: OutputReader) -> None:
        self._zygote = zygote
        self._channel = channel
        self.pid = pid
        self._output = output
        self.alive = True
        self.confinement: dict[str, str] = {}

    def ask(self, op: str, *, timeout_s: float, descriptors: tuple[int, ...] = (), **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises WorkerFailure; after "timeout" and "died" it is gone."""
        self.post(op, timeout_s=timeout_s, descriptors=descriptors, **fields)
        return self.wait(timeout_s=timeout_s)

    def post(self, op: str, *, timeout_s: float, descriptors: tuple[int, ...] = (), **fields: Any) -> None:
        if not self.alive:
            raise WorkerFailure("died", "the process is gone")
        try:
            self._channel.send({"op": op, **fields}, descriptors, timeout_s=timeout_s)
        except ChannelError as error:
            raise self._lost(error, timeout_s) from None

    def wait(self, *, timeout_s: float) -> dict[str, Any]:
        try:
            answer, descriptors = self._channel.receive(timeout_s=timeout_s)
        except ChannelError as error:
            raise self._lost(error, timeout_s) from None
        for descriptor in descriptors:
            os.close(descriptor)
        if answer.get("ok") is not True:
            raise WorkerFailure(str(answer.get("kind", "runtime")), str(answer.get("message", ""))[:4000])
        return answer

    def _lost(self, error: ChannelError, timeout_s: float) -> WorkerFailure:
        if isinstance(error, ChannelTimeoutError):
            self.kill()
            return WorkerFailure("timeout", f"no answer within {timeout_s:.0f} s; the process was killed")
        status = self._zygote.status_of(self.pid)
        self.kill()
        return WorkerFailure("died", _death(status) if isinstance(error, ChannelClosedError) else str(error))

    def output(self) -> str:
        """What it printed so far, clipped; text only."""
        return self._output.text()

    def kill(self) -> None:
        """SIGKILL to the whole group; its namespace, if it has one, goes with it."""
        if self.alive:
            self.alive = False
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            self._channel.close()
            self._output.close()


class Zygote:
    """The zygote process. One a judge; it lives as long as the judge. It starts at once and forks when it is ready."""

    def __init__(self, *, num_threads: int) -> None:
        ours, theirs = Channel.pair()
        self._channel = ours
        code = f"from eval_harness.candidate_process.zygote import main; main({theirs.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            pass_fds=(theirs.fileno(),),
            env=_environment(num_threads),
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        theirs.close()

    def wait_until_ready(self) -> None:
        """The imports are done. Raises HarnessError."""
        try:
            self._channel.receive(timeout_s=START_TIMEOUT_S)
        except ChannelError as error:
            self.close()
            raise HarnessError(f"the zygote did not start: {error}; run `passwright doctor`") from None

    def fork(self, **settings: Any) -> Worker:
        """A fresh worker that has answered nothing yet. Raises HarnessError."""
        ours, theirs = Channel.pair()
        reading, writing = os.pipe()
        try:
            self._channel.send({"op": "fork", "settings": settings}, (theirs.fileno(), writing))
            answer, _ = self._channel.receive(timeout_s=START_TIMEOUT_S)
        except ChannelError as error:
            raise HarnessError(f"the zygote is gone: {error}") from None
        finally:
            theirs.close()
            os.close(writing)
        return Worker(self, ours, answer["pid"], OutputReader(reading))

    def status_of(self, pid: int) -> int | None:
        """Exit status of a worker that ended (negative: the signal), None if it is not known yet."""
        try:
            for _ in range(5):
                self._channel.send({"op": "status", "pid": pid})
                answer, _ = self._channel.receive(timeout_s=START_TIMEOUT_S)
                if answer["status"] is not None:
                    return int(answer["status"])
                threading.Event().wait(0.05)
        except ChannelError as error:
            raise HarnessError(f"the zygote is gone: {error}") from None
        return None

    def close(self) -> None:
        self._channel.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class OutputReader:
    """Drains a worker's stdout and stderr so that it never blocks, and keeps the first part."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with os.fdopen(self._descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(65536):
                room = KEPT_OUTPUT_BYTES - len(self._kept)
                self._kept += chunk[: max(room, 0)]

    def text(self) -> str:
        return bytes(self._kept).decode(errors="replace")

    def close(self) -> None:
        self._thread.join(timeout=0.5)


def _environment(num_threads: int) -> dict[str, str]:
    """What a worker may know of the machine: an allow-list, the search path as it is here, and thread settings."""
    environment = {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *(path for path in sys.path if path and path != root)]
    return environment | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "NUMBA_THREADING_LAYER": "workqueue",
        "NUMBA_NUM_THREADS": str(num_threads),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "CUDA_MODULE_LOADING": "LAZY",
    }


def _death(status: int | None) -> str:
    if status is None:
        return "the process ended without an answer"
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    if status > 128:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(status - 128).name}"
    return f"the process exited with status {status} without an answer"
