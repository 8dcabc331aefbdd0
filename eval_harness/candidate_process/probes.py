"""Whether a layer of confinement really holds: each probe tries, in the confined process, what the layer forbids.

A call that returned 0 is not a layer: a container may emulate it, a mount may be shadowed. A layer that is said to be
on and through which its probe gets is recorded as off, with what was possible. All of them take a few milliseconds.
Network and file probes run before seccomp, which would refuse the same calls and so hide that a layer is missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_NAMESPACES = {"user": "user", "ipc": "ipc", "pid": "pid", "network": "net", "mount": "mnt"}
"""Layer without "-namespace" -> file below /proc/self/ns."""
_UNROUTED = "192.0.2.1"  # documentation range: nothing answers there
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True)
class Before:
    """What the process could see before it was confined."""

    namespaces: dict[str, int]
    """Layer -> number of the namespace it was in."""

    @classmethod
    def look(cls) -> Before:
        return cls({layer: number for layer in _NAMESPACES if (number := _namespace(layer)) is not None})


@dataclass(frozen=True)
class Expected:
    """What the confined process is to find."""

    scratch: str
    scratch_bytes: int
    hidden: tuple[str, ...]
    """Folders that are to be empty or unreadable."""
    unreadable: tuple[str, ...]
    """Files of which none may be opened."""
    unwritable: tuple[str, ...]
    """Folders in which no file may be made."""


def check_before_seccomp(state: dict[str, str], before: Before, expected: Expected) -> None:
    """Try what the layers forbid; in state, a layer that does not hold becomes off."""
    for layer, number in before.namespaces.items():
        _demand(state, f"{layer}-namespace", partial(_same_namespace, layer, number))
    _demand(state, "pid-namespace", lambda: "" if os.getpid() == 1 else "this process is not the first one there")
    _demand(state, "network-namespace", _reaches_network)
    _demand(state, "proc", _foreign_processes)
    _demand(state, "private-tmp", lambda: _unbounded(expected))
    _demand(state, "read-only-root", lambda: _writable_mount(expected) or _writes_into(expected.unwritable))
    _demand(state, "private-dev", _odd_devices)
    _demand(state, "hidden-sources", lambda: _not_empty(expected.hidden))
    _demand(state, "landlock", lambda: _opens(expected.unreadable) or _writes_into(expected.unwritable))
    _demand(state, "landlock-tcp", _connects)
    _demand(state, "landlock-scope", _signals_parent)
    _demand(state, "no-new-privileges", lambda: "" if _status("NoNewPrivs") == "1" else "the kernel says it is not set")
    _demand(state, "capabilities", _keeps_capabilities)
    _demand(state, "environment", _initial_variables)
    _demand(state, "rlimits", lambda: "" if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0) else "core files")


def check_seccomp(state: dict[str, str]) -> None:
    """The filter refuses what only it refuses here."""
    _demand(state, "seccomp", _passes_filter)


def _demand(state: dict[str, str], layer: str, probe: Callable[[], str]) -> None:
    if state.get(layer) != "on":
        return
    try:
        possible = probe()
    except OSError as error:
        possible = f"the probe itself failed ({error})"
    if possible:
        state[layer] = f"granted by the kernel, but its probe failed: {possible}"


def _namespace(layer: str) -> int | None:
    try:
        return Path(f"/proc/self/ns/{_NAMESPACES[layer]}").stat().st_ino
    except OSError:
        return None


def _same_namespace(layer: str, number: int) -> str:
    return "it is the namespace from before" if _namespace(layer) in (number, None) else ""


def _reaches_network() -> str:
    others = [name for _, name in socket.if_nameindex() if name != "lo" and Path(f"/sys/class/net/{name}").exists()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_UNROUTED, 9))  # UDP: sends nothing, only looks for a route
        except OSError:
            return ""
    return f"there is a route to the outside ({', '.join(others) or 'lo'})"


def _connects() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        number = probe.connect_ex(("127.0.0.1", 9))
    return "" if number == errno.EACCES else f"a TCP connection was answered with {errno.errorcode.get(number, number)}"


def _foreign_processes() -> str:
    seen = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return "" if seen == [str(os.getpid())] else f"{len(seen)} processes can be seen"


def _unbounded(expected: Expected) -> str:
    found = os.statvfs(expected.scratch)
    size = found.f_blocks * found.f_frsize
    return "" if size <= expected.scratch_bytes + (1 << 20) else f"it holds {size >> 20} MiB"


def _writable_mount(expected: Expected) -> str:
    allowed = (expected.scratch, "/dev", "/proc")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point, options = line.split()[4:6]
        below = any(point == place or point.startswith(f"{place}/") for place in allowed)
        if "rw" in options.split(",") and not below:
            return f"{point} is writable"
    return ""


def _writes_into(folders: Iterable[str]) -> str:
    for folder in folders:
        path = f"{folder.rstrip('/')}/passwright-probe-{os.getpid()}"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            continue
        with contextlib.suppress(OSError):
            Path(path).unlink()
        return f"a file was made in {folder}"
    return ""


def _opens(paths: Iterable[str]) -> str:
    for path in paths:
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            return f"{path} was opened"
    return ""


def _odd_devices() -> str:
    plain = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm"}
    names = sorted(entry.name for entry in Path("/dev").iterdir())
    odd = [name for name in names if name not in plain and not name.startswith("nvidia")]
    return f"/dev holds {', '.join(odd[:3])}" if odd else ""


def _not_empty(folders: Iterable[str]) -> str:
    for folder in folders:
        with contextlib.suppress(OSError):
            if any(Path(folder).iterdir()):
                return f"{folder} can be listed"
    return ""


def _signals_parent() -> str:
    parent = os.getppid()
    if parent == 0:  # outside this PID namespace: no such process
        return ""
    try:
        os.kill(parent, 0)
    except OSError as error:
        return "" if error.errno in _REFUSED else f"a signal was answered with {error.strerror}"
    return "a process outside could be signalled"


def _keeps_capabilities() -> str:
    sets = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    kept = [name for name in sets if (found := _status(name)) and int(found, 16)]
    return f"{', '.join(kept)} are not empty" if kept else ""


def _initial_variables() -> str:
    return "/proc/self/environ still has some" if Path("/proc/self/environ").read_bytes().strip(b"\0") else ""


def _passes_filter() -> str:
    mode = _status("Seccomp")
    if mode != "2":
        return f"mode {mode or 'unknown'}"
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError as error:
        return "" if error.errno == errno.EAFNOSUPPORT else f"socket() failed with {error.strerror}"
    return "an internet socket could be made"


def _status(name: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split(":", 1)[1].strip()
    return ""
