"""Host memory: how much is left on this machine or in this container, and how much a worker's processes hold."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_FILES = (
    # limit, use, statistics with the page cache that the kernel would give back
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)
"""Version 2, version 1, as a container sees its own."""
_UNLIMITED = 1 << 60


def total_bytes() -> int:
    """What this machine or container may hold at most."""
    limit = _cgroup_limit()
    total = _meminfo("MemTotal")
    return total if limit is None else min(total, limit[0])


def available_bytes() -> int:
    """What can still be had without swapping: of the machine and, where it has a limit, of the container.

    One small file is read, two or three in a container: cheap enough for every few milliseconds.
    """
    available = _meminfo("MemAvailable")
    limit = _cgroup_limit()
    if limit is not None:
        most, used_path, statistics_path = limit
        with contextlib.suppress(OSError, ValueError):
            used = int(Path(used_path).read_text())
            cache = re.search(r"^(?:total_)?inactive_file (\d+)", Path(statistics_path).read_text(), re.MULTILINE)
            available = min(available, most - used + (int(cache[1]) if cache else 0))
    return max(available, 0)


def num_tasks() -> int:
    """Threads and processes on the machine, by one small file; 0 where it does not say."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    except (OSError, ValueError, IndexError):
        return 0


def held_bytes(pids: Iterable[int]) -> int:
    """Memory that processes hold: private pages, their share of common ones, memory files, file systems in memory.

    Pages of files on disk are not counted: the kernel takes them back. Milliseconds for each GiB; for when a cheap sign
    says that something is up.
    """
    private = shared = 0
    files: dict[str, int] = {}
    shown_here = {device for device, _ in _memory_mounts("self")}
    for pid in pids:
        anonymous, common = _proportional_bytes(pid)
        private += anonymous
        shared += common
        _count_memory_files(pid, files)
        for device, path in _memory_mounts(str(pid)):
            if device not in shown_here:  # the host's own are everybody's
                with contextlib.suppress(OSError):
                    size = os.statvfs(f"/proc/{pid}/root{path}")
                    files[device] = (size.f_blocks - size.f_bfree) * size.f_frsize
    # a mapped memory file is in both sums
    return private + max(shared, sum(files.values()))


def _proportional_bytes(pid: int) -> tuple[int, int]:
    """Anonymous memory and memory of mapped memory files."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
        return 1024 * (kib.get("Pss_Anon", kib["Pss"]) + kib.get("SwapPss", 0)), 1024 * kib.get("Pss_Shmem", 0)
    except (OSError, KeyError):
        pass  # another user's, or none of its files may be read: then what it does not share
    try:
        _, resident, shared = (int(word) for word in Path(f"/proc/{pid}/statm").read_text().split()[:3])
        return (resident - shared) * _PAGE_BYTES, 0
    except (OSError, ValueError):
        return 0, 0


def _count_memory_files(pid: int, files: dict[str, int]) -> None:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()).startswith("/memfd:"):
                    status = entry.stat()
                    files[f"memfd {status.st_dev} {status.st_ino}"] = status.st_blocks * 512


def _memory_mounts(pid: str) -> list[tuple[str, str]]:
    """Device number and folder of every tmpfs that a process sees."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            if after.startswith("tmpfs "):
                _, _, device, _, path = before.split()[:5]
                found.append((device, path))
    return found


def _meminfo(name: str) -> int:
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return _UNLIMITED


def _cgroup_limit() -> tuple[int, str, str] | None:
    for limit_path, used_path, statistics_path in _present_cgroup_files():
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(limit_path).read_text())  # "max" is no number
            if limit < _UNLIMITED:
                return limit, used_path, statistics_path
    return None


@functools.cache
def _present_cgroup_files() -> list[tuple[str, str, str]]:
    return [files for files in _CGROUP_FILES if all(Path(path).exists() for path in files)]
