"""The zygote: imports torch, numba, triton and our worker once, then forks a worker for each request.

Started by the judge with a scrubbed environment. It never touches CUDA and runs no tensor or numba code before a fork:
after one parallel region in the parent, children were seen to hang or to be killed. A fork costs milliseconds where a
fresh interpreter that imports the same costs seconds.

Covered here: start-up, reaping, the chain of processes a worker is made of. Not covered: what a worker may do (see
confinement.py) and what it answers (see worker.py).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
import time
from typing import Any

from eval_harness.candidate_process import readable
from eval_harness.own_memory import guard_memory
from eval_harness.process_tree import become_subreaper, children, kill_below
from eval_harness.protocol import Channel, ChannelClosedError, ChannelError

REAP_INTERVAL_S = 0.2
MAX_STATUSES = 256
END_TIMEOUT_S = 3.0


def main(descriptor: int) -> None:
    """Serve fork requests on the channel until the judge closes it."""
    judge = Channel.from_descriptor(descriptor)
    os.setsid()
    guard_memory()  # whoever could write it would be in every later worker
    _import_everything()
    gc.collect()
    gc.freeze()
    try:
        judge.send({"ok": True, "pid": os.getpid()})
    except ChannelClosedError:
        return  # the judge went while we imported
    become_subreaper()
    workers = _Workers()
    while True:
        readable, _, _ = select.select([judge], [], [], REAP_INTERVAL_S)
        workers.reap()
        if not readable:
            continue
        try:
            message, descriptors = judge.receive(timeout_s=60.0)
            judge.send(_answer(judge, message, descriptors, workers))
        except ChannelError:
            workers.end_all()
            return


def _answer(judge: Channel, message: dict[str, Any], descriptors: list[int], workers: _Workers) -> dict[str, Any]:
    if message["op"] == "status":
        return {"ok": True, "status": workers.statuses.get(message["pid"])}
    try:
        pid = _fork_worker(judge, descriptors, message["settings"])
    except OSError as error:  # no memory or no process left
        for descriptor in descriptors:
            os.close(descriptor)
        return {"ok": False, "message": f"fork: {error.strerror}"}
    workers.running.add(pid)
    return {"ok": True, "pid": pid}


class _Workers:
    """The workers that were forked here, and how the last of them ended."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.statuses: dict[int, int] = {}
        """Process id -> exit status, negative for a signal; the last MAX_STATUSES."""

    def reap(self) -> None:
        """Collect what ended, and kill what is no worker: orphans of one that was killed from outside."""
        has_orphans = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            if pid in self.running:
                self.running.discard(pid)
                self.statuses[pid] = os.waitstatus_to_exitcode(status)
                while len(self.statuses) > MAX_STATUSES:
                    self.statuses.pop(next(iter(self.statuses)))
                has_orphans = True
        if has_orphans:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        for pid in set(children(os.getpid())) - self.running:
            kill_below(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end_all(self) -> None:
        """The judge is gone. Each worker's outer process is told first: it removes what its worker leaves."""
        for pid in self.running:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_TIMEOUT_S
        while self.running and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.01)
        kill_below(os.getpid())


def _import_everything() -> None:
    """What every worker needs, imported once. Nothing here may start a thread or run a tensor operation."""
    for name in ("torch", "eval_harness.candidate_process.worker"):
        importlib.import_module(name)
    for name in ("numba", "triton", "triton.language"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "numba" in sys.modules:
        _warm_numba_compiler()
    readable.interpreter_paths()  # workers inherit what was found
    readable.compiler_folders()


def _warm_numba_compiler() -> None:
    """Compile, never run, one small kernel: it fills numba's typing tables, which costs each child about a second."""
    import numba
    import numpy as np

    def scale_rows(source: Any, target: Any, factor: Any) -> None:
        for row in range(source.shape[0]):
            total = np.float32(0.0)
            for column in range(source.shape[1]):
                total += source[row, column] * factor
            target[row] = total

    array_type = numba.types.Array(numba.float32, 2, "C")
    numba.njit((array_type, numba.types.Array(numba.float32, 1, "C"), numba.float32))(scale_rows)


def _fork_worker(judge: Channel, descriptors: list[int], settings: dict[str, Any]) -> int:
    channel_descriptor, output_descriptor = descriptors
    pid = os.fork()
    if pid:
        os.close(channel_descriptor)
        os.close(output_descriptor)
        return pid
    try:
        os.setsid()
        judge.close()
        _redirect_output(output_descriptor)
        _become_worker(channel_descriptor, settings)
        os._exit(0)
    except BaseException as error:
        # one line for whoever reads what the worker printed; a traceback of ours would tell a candidate about us
        with contextlib.suppress(BaseException):
            sys.stderr.write(f"the worker could not go on: {type(error).__name__}: {error}\n")
        os._exit(70)


def _redirect_output(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(null)
    os.close(descriptor)


def _become_worker(channel_descriptor: int, settings: dict[str, Any]) -> None:
    from eval_harness.candidate_process import worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker.run(Channel.from_descriptor(channel_descriptor), settings)


if __name__ == "__main__":
    main(int(sys.argv[1]))
