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
import traceback
from pathlib import Path
from typing import Any

from eval_harness.protocol import Channel, ChannelClosedError


def main(descriptor: int) -> None:
    """Serve fork requests on the channel until the judge closes it."""
    judge = Channel.from_descriptor(descriptor)
    os.setsid()
    _import_everything()
    gc.collect()
    gc.freeze()
    try:
        judge.send({"ok": True, "pid": os.getpid()})
    except ChannelClosedError:
        return  # the judge went while we imported
    statuses: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([judge], [], [], 0.2)
        _reap(statuses)
        if not readable:
            continue
        try:
            message, descriptors = judge.receive(timeout_s=60.0)
        except ChannelClosedError:
            _kill_children()
            return
        if message["op"] == "fork":
            pid = _fork_worker(judge, descriptors, message["settings"])
            judge.send({"ok": True, "pid": pid})
        elif message["op"] == "status":
            judge.send({"ok": True, "status": statuses.get(message["pid"])})


def _import_everything() -> None:
    """What every worker needs, imported once. Nothing here may start a thread or run a tensor operation."""
    for name in ("torch", "eval_harness.candidate_process.worker"):
        importlib.import_module(name)
    for name in ("numba", "triton", "triton.language"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "numba" in sys.modules:
        _warm_numba_compiler()


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
    except BaseException:
        traceback.print_exc()
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


def _reap(statuses: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        statuses[pid] = os.waitstatus_to_exitcode(status)


def _kill_children() -> None:
    """The judge is gone: end every worker. Each is the leader of its own group."""
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == own:
                os.killpg(int(entry.name), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
