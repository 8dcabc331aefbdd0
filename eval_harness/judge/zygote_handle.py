"""The judge's handle on its zygote: start it, have it fork workers, see killed workers off.

The zygote runs nothing of a candidate's, so its loss is the judge's loss: JudgeError, which is counted.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError, JudgeError
from eval_harness.judge.output import OutputReader
from eval_harness.judge.workers import Worker
from eval_harness.process_tree import kill_below
from eval_harness.protocol import Channel, ChannelError

START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 20.0
"""For a fork or a question. A fork takes milliseconds; a zygote that takes this long hangs."""
END_TIMEOUT_S = 60.0
"""For killed workers to be gone: a driver frees memory meanwhile, and hundreds of forks of one take seconds to go."""

_PASSED_ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES", "OPENBLAS_CORETYPE", "VIRTUAL_ENV", "CC", "CXX", "TRITON_PTXAS_PATH",
)  # fmt: skip


class Zygote:
    """The zygote process. One a judge; it lives as long as the judge. It starts at once and forks when it is ready."""

    def __init__(self, *, num_threads: int) -> None:
        ours, theirs = Channel.pair()
        self._channel = ours
        self._workers: list[Worker] = []
        code = f"from eval_harness.candidate_process.zygote import main; main({theirs.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            pass_fds=(theirs.fileno(),),
            env=_environment(num_threads),
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """The imports are done. Raises HarnessError."""
        try:
            self._channel.receive(timeout_s=START_TIMEOUT_S)
        except ChannelError as error:
            self.close()
            raise HarnessError(f"the zygote did not start: {error}; run `passwright doctor`") from None

    def fork(self, role: str, **settings: Any) -> Worker:
        """A fresh worker that has answered nothing yet. Raises HarnessError."""
        ours, theirs = Channel.pair()
        reading, writing = os.pipe()
        try:
            answer = self._ask({"op": "fork", "settings": settings | {"role": role}}, (theirs.fileno(), writing))
            if not answer.get("ok"):
                raise HarnessError(f"no worker could be forked: {answer.get('message')}")
            worker = Worker(role, ours, answer["pid"], OutputReader(reading), self.status_of)
        except (HarnessError, ProcessLookupError) as error:
            ours.close()
            with contextlib.suppress(OSError):
                os.close(reading)
            raise HarnessError(str(error)) if isinstance(error, OSError) else error from None
        finally:
            theirs.close()
            os.close(writing)
        self._workers.append(worker)
        return worker

    def status_of(self, pid: int) -> int | None:
        """Exit status of a worker that ended (negative: the signal), None if it is not known yet."""
        for _ in range(10):
            answer = self._ask({"op": "status", "pid": pid})
            if answer["status"] is not None:
                return int(answer["status"])
            time.sleep(0.02)
        return None

    def see_off(self) -> None:
        """Wait until nothing of the killed workers runs. Raises JudgeError: a driver may hold on to one."""
        killed = [worker for worker in self._workers if not worker.alive]
        self._workers = [worker for worker in self._workers if worker.alive]
        stuck = [str(worker.pid) for worker in killed if not worker.has_ended(timeout_s=END_TIMEOUT_S)]
        if stuck:
            raise JudgeError(f"killed processes do not end ({', '.join(stuck)}): the device's driver may hang")

    def _ask(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        try:
            self._channel.send(message, descriptors, timeout_s=ANSWER_TIMEOUT_S)
            return self._channel.receive(timeout_s=ANSWER_TIMEOUT_S)[0]
        except ChannelError as error:
            raise JudgeError(f"the zygote was lost: {error}") from None

    def close(self) -> None:
        """Let it end its workers and go; else end all of it."""
        for worker in self._workers:
            worker.kill()
        self._channel.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            kill_below(self._process.pid)
            self._process.kill()
            self._process.wait()


def _environment(num_threads: int) -> dict[str, str]:
    """What a worker may know of the machine: an allow-list, the search path as it is here, and thread settings."""
    environment = {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *(path for path in sys.path if path and path != root)]
    return environment | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # freed memory stays: giving it back and faulting it in again, page by page, is most of a large tensor's noise
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(2 << 30),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "NUMBA_THREADING_LAYER": "workqueue",
        "NUMBA_NUM_THREADS": str(num_threads),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "CUDA_MODULE_LOADING": "LAZY",
    }
