"""Only one evaluation at a time uses a device, across processes and users of the machine (flock)."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from eval_harness import gpu_sharing

WAIT_TICK_S = 30.0


@contextmanager
def exclusive_use(device: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[float]:
    """Hold the device's lock; yields the seconds that were spent waiting for it.

    on_wait: called every WAIT_TICK_S meanwhile, from another thread: whoever waits for us must know that we live.
    Re-entering it in one process is not supported and not needed.
    """
    descriptor = open_lock(lock_path(device))
    started = time.monotonic()
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with _ticking(on_wait):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield time.monotonic() - started
    finally:
        os.close(descriptor)


def lock_path(device: str) -> Path:
    """The file whose flock is the device's."""
    return Path(tempfile.gettempdir()) / f"passwright-{_device_key(device)}.lock"


def is_waited_for(path: Path) -> bool | None:
    """Whether a process waits for the lock of a file. None where the kernel does not list locks (some sandboxes)."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    if not lines:
        return None
    return any(" -> FLOCK " in line and f":{inode} " in line for line in lines)


def open_lock(path: Path) -> int:
    """A descriptor of a lock's file, which is made if need be; its flock is the caller's business."""
    # an existing file is opened without O_CREAT: in a sticky folder the kernel refuses that for another user's
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask: every user of the machine shares the device
        return descriptor
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


@contextmanager
def _ticking(tick: Callable[[], None]) -> Iterator[None]:
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(WAIT_TICK_S):
            tick()

    thread = threading.Thread(target=run, daemon=True, name="device-wait")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@functools.cache
def _device_key(device: str) -> str:
    """Names the physical device: "cuda:0" means another one under another CUDA_VISIBLE_DEVICES, and a GPU may be chosen
    there by number or by UUID. A MIG slice shares the lock of its GPU."""
    if not device.startswith("cuda"):
        return "cpu"
    chosen = gpu_sharing.whole_gpu(device) or gpu_sharing.selected(device)
    name = (gpu_sharing.query(f"--id={chosen}", "--query-gpu=uuid", "--format=csv,noheader") or chosen).strip()
    return f"cuda-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
