"""Resource limits of a confined process, sizes that fit this machine, and whom the kernel kills first.

RLIMIT_AS is not among them: CUDA reserves far more addresses than memory. How much memory a candidate really takes is
watched by the judge.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from eval_harness.candidate_process import syscalls

_MIB = 1 << 20
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
FIRST_TO_KILL = 1000
"""oom_score_adj: the kernel takes this process before any other when memory runs out."""


def memory_bytes() -> int:
    """Memory of this machine, or what its container may use."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            total = min(total, int(Path(path).read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return total


def share_of_memory(wanted_bytes: int, share: float) -> int:
    """wanted_bytes, or that share of the memory where it is less; at least 16 MiB."""
    return max(16 * _MIB, min(wanted_bytes, int(memory_bytes() * share)))


def be_killed_first() -> str:
    """Raise oom_score_adj; anyone may. To be done before privilege is given up: then it cannot be lowered again."""
    path = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError):  # the files of a process that changed its user belong to root otherwise
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    try:
        path.write_text(str(FIRST_TO_KILL))
        return "on" if int(path.read_text()) == FIRST_TO_KILL else "the kernel keeps another score"
    except (OSError, ValueError) as error:
        return f"refused ({error})"


def set_limits(*, max_open_files: int, max_file_bytes: int, gpu: bool) -> str:
    """Everything but the number of processes. "on", or what was refused and did not hold when it was read back."""
    wanted = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, max_open_files),
        (resource.RLIMIT_FSIZE, max_file_bytes),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 4096),
        (resource.RLIMIT_RTPRIO, 0),  # a real-time thread would starve the judge
        (resource.RLIMIT_NICE, 0),
    ]
    if not gpu:  # the CUDA driver locks memory
        wanted.append((resource.RLIMIT_MEMLOCK, 64 * _MIB))
    failed = []
    for kind, limit in wanted:
        _, hard = resource.getrlimit(kind)
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError) as error:
            failed.append(str(error))
        if resource.getrlimit(kind) != (value, value):
            failed.append(f"limit {kind} is {resource.getrlimit(kind)}, not {value}")
    # the soft limit stays: threads take their stack's size from it; g++ raises it to 64 MiB
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    most = 256 * _MIB
    if (hard == resource.RLIM_INFINITY or hard > most) and soft != resource.RLIM_INFINITY and soft <= most:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, most))
    return "; ".join(failed) or "on"


def limit_processes(max_processes: int) -> None:
    """RLIMIT_NPROC, soft and hard. Whether it holds is another question: see confinement.py. Raises OSError."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    value = max_processes if hard == resource.RLIM_INFINITY else min(max_processes, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (value, value))


def soft_process_limit(value: int) -> int:
    """Set the soft limit of processes and return what it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (value, hard))
    return soft
