"""The few Linux calls that confinement needs and Python does not have, through ctypes. No policy here."""

from __future__ import annotations

import contextlib
import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 32, 4096, 8192, 16384, 1 << 18
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

# the same on every architecture since Linux 5.12
_SYS_MOUNT_SETATTR, _SYS_LANDLOCK = 442, (444, 445, 446)
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(number: int, *arguments: object) -> int:
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    _libc.syscall.restype = ctypes.c_long
    return int(_libc.syscall(ctypes.c_long(number), *converted))


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """mount(2). Raises OSError naming the target."""
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    result = _libc.mount(*encoded, ctypes.c_ulong(flags), options.encode() or None)
    _check(result, f"mount {target}")


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def set_tree_read_only(path: str) -> None:
    """Make every mount at and below path read-only and nosuid (mount_setattr, Linux 5.12)."""
    attr = _MountAttr(attr_set=_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID)
    size = ctypes.sizeof(attr)
    result = _syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, ctypes.byref(attr), size)
    _check(result, "mount_setattr")


def prctl(option: int, value: int, *rest: int) -> None:
    arguments = [ctypes.c_ulong(argument) for argument in (value, *rest, 0, 0, 0)][:4]
    _check(_libc.prctl(ctypes.c_int(option), *arguments), f"prctl {option}")


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_all_capabilities() -> None:
    """Empty the bounding, ambient, inheritable, permitted and effective sets of this process."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EINVAL past the last capability; EPERM when an ordinary user has none to drop
    with contextlib.suppress(OSError):  # kernels before 4.3 have no ambient set
        prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CapHeader(version=0x20080522, pid=0)
    _check(_libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())), "capset")


def landlock_version() -> int:
    """The Landlock ABI of the kernel. Raises OSError where there is none."""
    return _check(_syscall(_SYS_LANDLOCK[0], None, 0, 1), "landlock_create_ruleset")


def landlock_create(attributes: ctypes.Structure) -> int:
    return _check(
        _syscall(_SYS_LANDLOCK[0], ctypes.byref(attributes), ctypes.sizeof(attributes), 0), "landlock_create_ruleset"
    )


def landlock_add_path(ruleset: int, rule: ctypes.Structure) -> None:
    _check(_syscall(_SYS_LANDLOCK[1], ruleset, 1, ctypes.byref(rule), 0), "landlock_add_rule")


def landlock_restrict_self(ruleset: int) -> None:
    _check(_syscall(_SYS_LANDLOCK[2], ruleset, 0), "landlock_restrict_self")


class FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def seccomp(number: int, operation: int, flags: int, program: FilterProgram) -> int:
    """seccomp(2), whose own number differs by architecture; a descriptor where a listener was asked for."""
    return _check(_syscall(number, operation, flags, ctypes.byref(program)), "seccomp")
