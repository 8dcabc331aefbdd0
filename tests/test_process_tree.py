"""Processes that try to outlive their worker: found below a subreaper and ended, with and without a PID namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eval_harness.process_tree import ProcessHandle, descendants, is_running, kill_below, stopped_below

ROOT = Path(__file__).resolve().parents[1]
DAEMON = """
import ctypes, os, sys, time
def daemon():
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(600)
    os._exit(0)
"""
ORPHANS_BELOW_A_SUBREAPER = """
from eval_harness.process_tree import become_subreaper
assert become_subreaper()
for _ in range(3):
    if os.fork() == 0:
        daemon()
time.sleep(600)
"""
LEFT_BY_A_WORKER = """
from eval_harness.candidate_process import namespaces, syscalls
if {refuse}:
    def refuse(flags):
        raise OSError(1, "Operation not permitted")
    syscalls.unshare = refuse
os.write(1, b"%d\\n" % os.getpid())
state = namespaces.enter_namespaces()
if os.fork() == 0:
    daemon()
os.wait()
time.sleep({seconds})
os._exit(0)
"""


def start(body: str, lines: int) -> tuple[subprocess.Popen, list[int]]:
    """A process, and the pids it and those below it print (as they see them)."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{DAEMON}{body}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, [int(process.stdout.readline()) for _ in range(lines)]


def wait_for_end(pids: list[int], seconds: float = 10.0) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def test_orphans_in_sessions_of_their_own_are_found_and_killed() -> None:
    process, daemons = start(ORPHANS_BELOW_A_SUBREAPER, 3)
    try:
        assert set(daemons) <= set(descendants(process.pid))
        assert kill_below(process.pid, timeout_s=10.0) == []
        assert wait_for_end(daemons) == []
        assert is_running(process.pid)
    finally:
        process.kill()
        process.wait()


def test_what_is_held_still_uses_no_processor_and_goes_on_after_it() -> None:
    code = (
        "import subprocess, sys, time\n"
        "spin = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "print(spin.pid, flush=True); time.sleep(60)\n"
    )
    process, (spinning,) = start(code, 1)
    clock = (~spinning << 3) | 2  # clock_getcpuclockid(3)
    try:
        wait_until_it_works(clock)
        with stopped_below(process.pid):
            before = time.clock_gettime(clock)
            time.sleep(0.3)
            assert time.clock_gettime(clock) == before
        wait_until_it_works(clock)
    finally:
        kill_below(process.pid)
        process.kill()
        process.wait()


def wait_until_it_works(clock: int) -> None:
    before, deadline = time.clock_gettime(clock), time.monotonic() + 10
    while time.clock_gettime(clock) < before + 0.02:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("refuse", [True, False], ids=["no namespaces", "namespaces"])
@pytest.mark.parametrize("ending", ["exits", "is told to end"])
def test_what_a_worker_leaves_ends_with_it(refuse: bool, ending: str) -> None:
    seconds = 0.2 if ending == "exits" else 600
    process, (_, daemon) = start(LEFT_BY_A_WORKER.format(refuse=refuse, seconds=seconds), 2)
    below = descendants(process.pid) + ([daemon] if refuse else [])  # inside a PID namespace it has another number
    assert len(below) >= 2 or ending == "exits"
    if ending == "is told to end":
        process.terminate()
    process.wait(timeout=20)
    assert wait_for_end(below) == []


def test_the_worker_ends_when_the_one_above_is_killed() -> None:
    """A supervisor that is killed with SIGKILL can tell nobody."""
    body = "child = os.fork()\nif child == 0:\n" + "".join(
        f"    {line}\n" for line in LEFT_BY_A_WORKER.format(refuse=True, seconds=600).splitlines()
    )
    process, (_, daemon) = start(f"{body}\nos.wait()\n", 2)
    below = [*descendants(process.pid), daemon]
    process.kill()
    process.wait()
    assert wait_for_end(below) == []


def test_a_handle_never_signals_a_pid_that_was_given_away() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    handle = ProcessHandle(process.pid)
    assert not handle.has_ended()
    handle.send(signal.SIGKILL)
    assert handle.has_ended(timeout_s=10.0)
    process.wait()
    handle.send(signal.SIGKILL)
    handle.close()
    with pytest.raises(ProcessLookupError):
        ProcessHandle(process.pid)
    assert os.getpid() not in descendants(os.getpid())
