"""New user, mount, IPC, PID and network namespaces for a freshly forked process, without needing privilege.

A PID namespace holds only children, so entering it forks: the process that called stays outside, waits, and ends the
way the child ended. To the one who forked it nothing changes: same pid, same exit status.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from eval_harness.candidate_process import fork_limit, syscalls
from eval_harness.own_memory import guard_memory
from eval_harness.process_tree import become_subreaper, kill_below

_CAP_SETFCAP = 31
_KINDS = {
    "user-namespace": syscalls.CLONE_NEWUSER,
    "ipc-namespace": syscalls.CLONE_NEWIPC,
    "pid-namespace": syscalls.CLONE_NEWPID,
    "network-namespace": syscalls.CLONE_NEWNET,
}


def enter_namespaces(
    after_end: Callable[[], None] | None = None, *, needs_proc: bool = False
) -> tuple[dict[str, str], fork_limit.Gate]:
    """Move this process into namespaces of its own; returns, in the child that is PID 1 there, layer -> "on" or why,
    and what reaches the process that waits outside.

    needs_proc: no PID namespace where its own /proc would be refused: CUDA fails on that of another one (error 304).

    The process must have one thread. uid and gid are mapped to themselves. The caller's process never returns from
    here: it waits for the child, calls after_end and exits with the child's status; when it is killed, the child dies.
    Only the child has mounts of its own, so after_end can remove what the child left on the host's file system.
    """
    user, group, parent = os.getuid(), os.getgid(), os.getppid()
    state = _unshare_each(with_pids=not needs_proc or _may_mount_proc())
    if state["user-namespace"] == "on":
        try:
            _map_to_self(user, group)
        except OSError as error:
            state["user-namespace"] = f"identity not mapped ({error.strerror})"
    outside, inside = socket.socketpair()
    child = os.fork()
    if child:
        inside.close()
        _wait_and_end_alike(child, parent, outside, after_end)
    outside.close()
    with contextlib.suppress(OSError):
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # a signal to its own group must not reach the one that waits outside
    state["mount-namespace"] = _try_unshare(syscalls.CLONE_NEWNS)
    return state, fork_limit.Gate(inside)


def _unshare_each(*, with_pids: bool) -> dict[str, str]:
    left_out = {}
    if not _may_map_itself():
        left_out["user-namespace"] = (
            "root without CAP_SETFCAP may not map itself there; run as an ordinary user, or add that capability"
        )
    if not with_pids:
        left_out["pid-namespace"] = "the container masks parts of /proc, and without its own /proc CUDA fails there"
    wanted = {layer: flag for layer, flag in _KINDS.items() if layer not in left_out}
    try:
        syscalls.unshare(sum(wanted.values()))
        return dict.fromkeys(wanted, "on") | left_out
    except OSError:
        pass  # one of them is refused: find out which
    # the user namespace comes first: it gives the right to the others
    return {layer: _try_unshare(flag) for layer, flag in wanted.items()} | left_out


def _may_mount_proc() -> bool:
    """Whether a new /proc may be mounted: tried in a process of its own where something is mounted below this one,
    which is how containers mask parts of it."""
    try:
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return True
    if not any(point.startswith("/proc/") and point != "/proc/sys/fs/binfmt_misc" for point in mounts):
        return True
    trial = os.fork()
    if trial == 0:
        with contextlib.suppress(BaseException):
            os._exit(_mount_proc_once())
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(trial, 0)[1]) == 0


def _mount_proc_once() -> int:
    """Exit status 0 if a /proc was mounted in namespaces of this process's own, or these were refused anyway."""
    user, group = os.getuid(), os.getgid()
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID | (syscalls.CLONE_NEWUSER if _may_map_itself() else 0))
    except OSError:
        return 0
    if _may_map_itself():
        _map_to_self(user, group)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            syscalls.unshare(syscalls.CLONE_NEWNS)
            syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
            syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _try_unshare(flag: int) -> str:
    try:
        syscalls.unshare(flag)
    except OSError as error:
        return f"refused by the kernel or the container ({error.strerror})"
    return "on"


def _may_map_itself() -> bool:
    """Since Linux 5.12 root may be mapped only by whoever has CAP_SETFCAP. An identity that is not mapped owns nothing
    and can write nowhere, and the way back out of a user namespace is closed: so this is asked before."""
    if os.geteuid() != 0:
        return True
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        effective = next(line for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return True
    return bool(int(effective.split()[1], 16) >> _CAP_SETFCAP & 1)


def _map_to_self(user: int, group: int) -> None:
    # a process that changed its user is not dumpable, and then its files under /proc belong to root
    with contextlib.suppress(OSError):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    process = Path("/proc/self")
    with contextlib.suppress(OSError):  # no such file before Linux 3.19
        (process / "setgroups").write_text("deny")
    (process / "uid_map").write_text(f"{user} {user} 1")
    (process / "gid_map").write_text(f"{group} {group} 1")


def _wait_and_end_alike(
    child: int, parent: int, channel: socket.socket, after_end: Callable[[], None] | None
) -> None:
    """Wait for the child, answering its forks, end what it left running, and end as it ended. Never returns."""
    guard_memory()  # this process is not confined: the child must not get into it
    # the child's descriptors: whoever reads the other end must see it die
    os.closerange(3, channel.fileno())
    os.closerange(channel.fileno() + 1, 4096)
    become_subreaper()  # without a PID namespace its orphans come here

    def end_child(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)

    # SIGTERM, also when the parent dies, and not SIGKILL: what the child left is still to be removed
    signal.signal(signal.SIGTERM, end_child)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        end_child()  # the parent died before this process asked to be told
    status = fork_limit.wait_and_answer(child, channel)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child's pid may be another's from here on
    _end_orphans()
    with contextlib.suppress(Exception):
        if after_end is not None:
            after_end()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        number = -code
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(code)


def _end_orphans() -> None:
    """Kill and reap what the child left behind: nothing, where it had a PID namespace."""
    for _ in range(100):
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            kill_below(os.getpid())
