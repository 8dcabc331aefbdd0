"""Only one evaluation at a time uses a device, across processes and users of the machine (flock)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_use(device: str) -> Iterator[None]:
    """Hold the device's lock. Re-entered by nested use in one process is not supported and not needed."""
    path = Path(tempfile.gettempdir()) / f"passwright-{_device_key(device)}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _device_key(device: str) -> str:
    """Names the physical device: "cuda:0" means another one under another CUDA_VISIBLE_DEVICES."""
    if not device.startswith("cuda"):
        return "cpu"
    index = int(device.split(":")[1]) if ":" in device else 0
    visible = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    name = visible[index] if index < len(visible) else str(index)
    return f"cuda-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
