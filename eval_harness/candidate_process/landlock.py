"""Landlock: which paths a process may read and write, and that it may open no TCP port. Needs no privilege.

Covered: opening files by path, TCP, signals and abstract sockets to processes outside (by ABI). Not covered: files that
are open already, UDP (the network namespace), metadata such as stat of a hidden path.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from eval_harness.candidate_process import syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_V1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP_BIND_AND_CONNECT = 3
_SCOPE_ABSTRACT_UNIX_AND_SIGNAL = 3
_ABI_REFER, _ABI_TRUNCATE, _ABI_TCP, _ABI_IOCTL, _ABI_SCOPE = 2, 3, 4, 5, 6


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def restrict(*, read: Iterable[str], write: Iterable[str], devices: Iterable[str]) -> dict[str, str]:
    """Limit this process and its children to the given paths (and what is below them).

    read: open, list, execute. write: everything but device nodes. devices: open, read, write, ioctl. Paths that do not
    exist are left out. no_new_privs must be set. Returns layer -> "on" or why it is off; never raises.
    """
    try:
        abi = syscalls.landlock_version()
    except OSError as error:
        reason = f"the kernel has no Landlock ({error.strerror})"
        return dict.fromkeys(("landlock", "landlock-tcp", "landlock-scope"), reason)
    handled = _ALL_V1
    for since, right in ((_ABI_REFER, _REFER), (_ABI_TRUNCATE, _TRUNCATE), (_ABI_IOCTL, _IOCTL_DEV)):
        handled |= right if abi >= since else 0
    fields = [("fs", handled)]
    if abi >= _ABI_TCP:
        fields.append(("net", _TCP_BIND_AND_CONNECT))
    if abi >= _ABI_SCOPE:
        fields.append(("scoped", _SCOPE_ABSTRACT_UNIX_AND_SIGNAL))
    layout = type("RulesetAttr", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_uint64) for name, _ in fields]})
    try:
        ruleset = syscalls.landlock_create(layout(*[value for _, value in fields]))
    except OSError as error:
        return dict.fromkeys(("landlock", "landlock-tcp", "landlock-scope"), str(error.strerror))
    try:
        reading = _EXECUTE | _READ_FILE | _READ_DIR
        for paths, rights in (
            (read, reading),
            (write, handled & ~(_MAKE_CHAR | _MAKE_BLOCK)),
            (devices, _READ_FILE | _WRITE_FILE | _READ_DIR | (_IOCTL_DEV | _TRUNCATE) & handled),
        ):
            for path in paths:
                _allow(ruleset, path, rights)
        syscalls.landlock_restrict_self(ruleset)
    except OSError as error:
        return dict.fromkeys(("landlock", "landlock-tcp", "landlock-scope"), str(error.strerror))
    finally:
        os.close(ruleset)
    too_old = f"the kernel's Landlock has ABI {abi}"
    return {
        "landlock": "on",
        "landlock-tcp": "on" if abi >= _ABI_TCP else too_old,
        "landlock-scope": "on" if abi >= _ABI_SCOPE else too_old,
    }


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this machine
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        syscalls.landlock_add_path(ruleset, _PathRule(rights, descriptor))
    finally:
        os.close(descriptor)
