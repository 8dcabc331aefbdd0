"""Fuse ``relu(x + bias) * gate`` into one parallel loop over rows.

Eager launches three element-wise kernels and writes two temporaries; one pass over the data is enough.
"""

from __future__ import annotations

from typing import Callable, Tuple

import numba
import numpy as np
import torch
from numba import prange


@numba.njit(parallel=True, nogil=True, error_model="numpy")
def _add_relu_mul(x: np.ndarray, bias: np.ndarray, gate: np.ndarray, out: np.ndarray) -> None:
    """out[i, j] = max(x[i, j] + bias[j], 0) * gate[i, j], rows in parallel."""
    rows, cols = x.shape
    for i in prange(rows):
        for j in range(cols):
            s = x[i, j] + bias[j]
            if s < np.float32(0.0):
                s = np.float32(0.0)
            out[i, j] = s * gate[i, j]


@torch.fx.wrap
def add_relu_mul(x: torch.Tensor, bias: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Launch the fused kernel.

    Args:
        x: activations, [rows, cols].
        bias: [cols].
        gate: same shape as ``x``.
    """
    out = torch.empty_like(x)
    _add_relu_mul(x.numpy(), bias.numpy(), gate.numpy(), out.numpy())
    return out


def pattern(x: torch.Tensor, bias: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """The subgraph to be replaced."""
    summed = x + bias
    activated = torch.relu(summed)
    return activated * gate


def replacement_args(x, bias, gate) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (x, bias, gate)


def replacement_func() -> Callable[..., torch.Tensor]:
    return add_relu_mul
