"""What a confined process sees of the file system: a read-only root, its own /proc, a bare /dev, one scratch tmpfs.

All of it needs a mount namespace with the right to mount in it (namespaces.py). Each function raises OSError when the
kernel refuses; confinement.py records why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from eval_harness.candidate_process import syscalls
from eval_harness.candidate_process.syscalls import (
    MS_BIND,
    MS_MOVE,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    MS_REMOUNT,
)

_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")
_SCRATCH_POINTS = ("/tmp", "/var/tmp", "/mnt", "/media", "/srv")


def detach() -> None:
    """No mount made here reaches the host."""
    syscalls.mount("none", "/", None, MS_REC | MS_PRIVATE)


def make_all_read_only_but(scratch: str) -> None:
    """Every mount becomes read-only and nosuid, the scratch folder's (a mount of its own) excepted."""
    syscalls.set_tree_read_only("/")
    syscalls.mount("none", scratch, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV)


def mount_own_proc() -> None:
    """A /proc that shows this PID namespace only. Refused where the container masks parts of its /proc."""
    syscalls.mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def choose_scratch_point(needed: Iterable[str]) -> str | None:
    """An existing folder to mount the scratch tmpfs on that hides none of the needed paths."""
    resolved = [Path(path).resolve() for path in needed]
    for point in _SCRATCH_POINTS:
        folder = Path(point)
        if folder.is_dir() and not folder.is_symlink() and not any(path.is_relative_to(folder) for path in resolved):
            return point
    return None


def mount_scratch(point: str, size_bytes: int) -> None:
    """The one writable file system; executable, because compiled kernels are loaded from it."""
    syscalls.mount("scratch", point, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size_bytes},nr_inodes=200k,mode=0700")


def mount_over_itself(folder: str) -> None:
    """Make a plain folder a mount of its own, so that it can stay writable when the rest does not."""
    syscalls.mount(folder, folder, None, MS_BIND)


def mount_own_dev(scratch: str, shm_bytes: int, *, gpu: bool) -> None:
    """A /dev with null, zero, full, random, urandom, the GPU's nodes if wanted, and a capped /dev/shm."""
    staging = Path(scratch) / ".dev"
    staging.mkdir()
    flags = MS_NOSUID | MS_NOEXEC
    syscalls.mount("dev", str(staging), "tmpfs", flags, "size=64k,nr_inodes=512,mode=0755")
    nodes = [Path("/dev") / name for name in _PLAIN_DEVICES]
    if gpu:
        nodes += sorted(Path("/dev").glob("nvidia*")) + sorted(Path("/dev").glob("nvidia-caps/*"))
    for node in nodes:
        if node.is_dir() or not node.exists():
            continue
        copy = staging / node.relative_to("/dev")
        copy.parent.mkdir(exist_ok=True)
        copy.touch()
        with contextlib.suppress(OSError):
            syscalls.mount(str(node), str(copy), None, MS_BIND)
    for link, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (staging / link).symlink_to(target)
    (staging / "shm").mkdir()
    options = f"size={shm_bytes},nr_inodes=4k,mode=0700"
    syscalls.mount("shm", str(staging / "shm"), "tmpfs", flags | MS_NODEV, options)
    syscalls.mount(str(staging), "/dev", None, MS_MOVE)
    staging.rmdir()


def hide(folders: Iterable[str]) -> int:
    """Cover each folder with an empty read-only tmpfs; the number covered."""
    count = 0
    for folder in folders:
        if Path(folder).is_dir():
            flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | syscalls.MS_RDONLY
            syscalls.mount("hidden", folder, "tmpfs", flags, "size=4k,nr_inodes=2,mode=0555")
            count += 1
    return count
