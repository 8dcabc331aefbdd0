"""Memory that was never written must not look like a result: it is filled with values no honest output holds."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

_M_PERTURB = -6
_PERTURB_BYTE = 0x80
"""malloc fills fresh memory with the complement, 0x7f: about 3.4e38 in float32 and bfloat16, NaN in float16."""
_COPIES = 3
_MAX_CUDA_BYTES = 4 << 30

_libc = ctypes.CDLL(None)


def fill(device: torch.device, sizes: Sequence[int]) -> None:
    """Poison what the next allocations will return. sizes: bytes of the outputs to come (CUDA's caching allocator hands
    a freed block of a size to the next request of it)."""
    if device.type == "cuda":
        budget = _MAX_CUDA_BYTES
        blocks = []
        for size in [*sizes] * _COPIES:
            if 0 < size <= budget:
                blocks.append(torch.full((size,), 0xFF, dtype=torch.uint8, device=device))
                budget -= size
        torch.cuda.synchronize(device)
        blocks.clear()
        return
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_PERTURB, _PERTURB_BYTE)


def stop() -> None:
    """Back to plain malloc."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_PERTURB, 0)
