"""seccomp: which system calls a confined process may still make. Our own BPF program, no library. Needs no privilege.

A deny-list: what neither CUDA, torch, numba nor a compiler uses, and what reaches past the other layers: other
processes' memory, namespaces and mounts, kernel modules and keys, io_uring (which makes system calls that no filter
sees), sockets of other families than AF_UNIX (where there is no network namespace this is the network layer), System V
and POSIX queues (which outlive a process), signals to others where no PID namespace hides them. Calls of another ABI
(32 bit, x32) fail with ENOSYS: their numbers mean other things.

Not covered: what an allowed call does (Landlock and the mounts say which files), arguments behind pointers; clone3,
whose flags are behind one, fails with ENOSYS so that libc falls back to clone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.candidate_process import syscalls
from eval_harness.candidate_process.syscall_numbers import AUDIT_ARCH, TABLES, machine

_SET_MODE_FILTER = 1
_FLAG_SPEC_ALLOW, _FLAG_NEW_LISTENER = 1 << 2, 1 << 3
_RET_ALLOW, _RET_ERRNO, _RET_NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data; the low half of an argument comes first on both architectures."""
_X32_BIT = 0x40000000
_CLONE_NEW_ANY = 0x7E020000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_MM = 1, 22, 35
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423

_DENIED = (
    # other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_mrelease",
    # the kernel and the machine
    "kexec_load", "kexec_file_load", "create_module", "init_module", "finit_module", "delete_module", "reboot", "acct",
    "swapon", "swapoff", "quotactl", "quotactl_fd", "syslog", "vhangup", "settimeofday", "clock_settime", "adjtimex",
    "clock_adjtime", "sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "personality", "uselib", "ustat",
    "sysfs", "nfsservctl", "lookup_dcookie",
    # large and rarely needed attack surface
    "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "fanotify_init", "seccomp",
    # namespaces and mounts, once ours are made
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "mount_setattr", "move_mount", "open_tree",
    "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "open_by_handle_at",
    # what stays in the kernel when the process is gone
    "shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
)  # fmt: skip
_AS_IF_UNKNOWN = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")
"""ENOSYS instead of EPERM: libraries that know them have a way without."""
_FORKS = ("fork", "vfork")
_SIGNALS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand: struct sock_filter."""


@dataclass(frozen=True)
class Filter:
    """What a filter is to decide beyond the fixed deny-list."""

    families: tuple[int, ...] = (socket.AF_UNIX,)
    """Socket families that stay."""
    own_pid_only: int | None = None
    """Where no PID namespace hides other processes: the only process that may be signalled, and no new session may be
    begun, so that the whole group can be killed."""
    counts_forks: bool = False
    """Every new process or thread waits for the answer of whoever holds the listener (fork_limit.py)."""


def build(wanted: Filter, name: str | None = None) -> list[Instruction]:
    """The BPF program for a machine of TABLES, this one by default. Raises OSError for another architecture."""
    name = name or machine()
    numbers = TABLES[name]
    program: list[Instruction] = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[name]), _fail(errno.ENOSYS)]
    program.append((_LOAD, 0, 0, _NUMBER))
    if name == "x86_64":
        program += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), _fail(errno.ENOSYS)]
    forking = (_RETURN, 0, 0, _RET_NOTIFY if wanted.counts_forks else _RET_ALLOW)
    checked = {
        "socket": _only(0, wanted.families, errno.EAFNOSUPPORT),
        "ioctl": _none_of(1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD)),
        "prctl": _none_of(0, (_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_MM)),
        "prlimit64": _only(0, (0, *([wanted.own_pid_only] if wanted.own_pid_only else [])), errno.EPERM),
        "clone": [
            (_LOAD, 0, 0, _ARGUMENTS),
            (_JUMP_ANY_BIT, 0, 1, _CLONE_NEW_ANY),
            _fail(errno.EPERM),
            forking,
        ],
    } | {call: [forking] for call in _FORKS}
    if wanted.own_pid_only is not None:
        checked |= {call: _only(0, (wanted.own_pid_only,), errno.EPERM) for call in _SIGNALS}
        checked |= {call: [_fail(errno.EPERM)] for call in ("tkill", "pidfd_send_signal", "setsid")}
    checked |= {call: [_fail(errno.EPERM)] for call in _DENIED}
    checked |= {call: [_fail(errno.ENOSYS)] for call in _AS_IF_UNKNOWN}
    for call, block in checked.items():
        if call in numbers:
            program += [(_JUMP_EQUAL, 0, len(block), numbers[call]), *block]
    return [*program, (_RETURN, 0, 0, _RET_ALLOW)]


def install(wanted: Filter) -> int | None:
    """Put the filter on this process for good; no_new_privs must be set. The listener if it counts forks.

    Raises OSError where the kernel or the container refuses.
    """
    return install_program(build(wanted), listener=wanted.counts_forks)


def install_program(program: Sequence[Instruction], *, listener: bool = False) -> int | None:
    """Install a BPF program. Raises OSError."""
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    kept = ctypes.create_string_buffer(packed, len(packed))
    header = syscalls.FilterProgram(len(program), ctypes.cast(kept, ctypes.c_void_p))
    # without SPEC_ALLOW kernels before 5.16 slow every process with a filter down (store bypass disabled)
    flags = _FLAG_SPEC_ALLOW | (_FLAG_NEW_LISTENER if listener else 0)
    result = syscalls.seccomp(TABLES[machine()]["seccomp"], _SET_MODE_FILTER, flags, header)
    if not listener:
        return None
    os.set_inheritable(result, False)
    return result


def refusal(calls: Sequence[str], number: int = errno.EPERM) -> list[Instruction]:
    """A program that refuses the named calls and nothing else: what a container's own filter does, for tests."""
    numbers = TABLES[machine()]
    program: list[Instruction] = [(_LOAD, 0, 0, _NUMBER)]
    for call in calls:
        program += [(_JUMP_EQUAL, 0, 1, numbers[call]), _fail(number)]
    return [*program, (_RETURN, 0, 0, _RET_ALLOW)]


def _fail(number: int) -> Instruction:
    return (_RETURN, 0, 0, _RET_ERRNO | number)


def _only(argument: int, allowed: Sequence[int], otherwise: int) -> list[Instruction]:
    """Allow these values of an argument (its low 32 bits), fail with any other."""
    block: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
    for value in allowed:
        block += [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _RET_ALLOW)]
    return [*block, _fail(otherwise)]


def _none_of(argument: int, denied: Sequence[int]) -> list[Instruction]:
    """Fail with these values of an argument, allow any other."""
    block: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
    for value in denied:
        block += [(_JUMP_EQUAL, 0, 1, value), _fail(errno.EPERM)]
    return [*block, (_RETURN, 0, 0, _RET_ALLOW)]
