"""Processes below a process, as /proc shows them: who they are, and their end. Knows nothing of ours.

Killing a process group is not enough: a candidate leaves its group with setsid and its parent by a double fork. A PID
namespace ends with its first process; where the kernel refuses one, orphans stay below the nearest subreaper
(prctl PR_SET_CHILD_SUBREAPER), and this module finds them there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_RESCAN_S = 0.02


def become_subreaper() -> bool:
    """Orphans below this process become its children. False where the kernel has no such thing."""
    return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def children(parent: int) -> list[int]:
    """Processes whose parent this is, zombies included."""
    return _by_parent().get(parent, [])


def descendants(root: int) -> list[int]:
    """Every process below root, parents before children, zombies included."""
    by_parent = _by_parent()
    found: list[int] = []
    frontier = [root]
    while frontier:
        frontier = [child for parent in frontier for child in by_parent.get(parent, [])]
        found += frontier
    return found


def _by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (state := _state_and_parent(int(entry.name))):
            found.setdefault(state[1], []).append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    state = _state_and_parent(pid)
    return state is not None and state[0] not in "ZX"


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return fields[0].decode(), int(fields[1])


def kill_below(root: int, *, timeout_s: float = 2.0) -> list[int]:
    """SIGKILL everything below root, root itself not; returns who still runs when the time is up.

    All are stopped before any is killed: a fork bomb outruns a killer that goes from one process to the next.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        for pid in _stop_below(root, deadline):
            _signal(pid, signal.SIGKILL)
        left = [pid for pid in descendants(root) if is_running(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_RESCAN_S)


@contextlib.contextmanager
def stopped_below(root: int, *, timeout_s: float = 2.0) -> Iterator[None]:
    """Nothing below root runs inside the context; all of it goes on after it."""
    stopped = _stop_below(root, time.monotonic() + timeout_s)
    try:
        yield
    finally:
        for pid in stopped:
            _signal(pid, signal.SIGCONT)


def _stop_below(root: int, deadline: float) -> set[int]:
    stopped: set[int] = set()
    while new := {pid for pid in descendants(root) if pid not in stopped and is_running(pid)}:
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        stopped |= new
        if time.monotonic() > deadline:
            break
    return stopped


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


class ProcessHandle:
    """One process by pidfd, so that a pid that was given to another process is never signalled.

    Where the kernel has no pidfds (before Linux 5.3, some sandboxes) it is the plain pid.
    """

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError if there is no such process."""
        self.pid = pid
        self._descriptor: int | None = None
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:
            os.kill(pid, 0)

    def send(self, number: int) -> None:
        """Signal it; nothing happens if it has ended."""
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._descriptor, number)

    def has_ended(self, *, timeout_s: float = 0.0) -> bool:
        """Whether it has ended (a zombie has), waiting at most timeout_s."""
        if self._descriptor is not None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000))
        deadline = time.monotonic() + timeout_s
        while is_running(self.pid):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
