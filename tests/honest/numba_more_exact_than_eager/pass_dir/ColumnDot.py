import numba
import numpy as np
import torch


@numba.njit
def column_dot_kernel(a, b, out):
    for c in range(a.shape[1]):
        total = np.float64(0.0)
        for r in range(a.shape[0]):
            total += np.float64(a[r, c]) * np.float64(b[r, c])
        out[c] = total


@torch.fx.wrap
def column_dot(a, b):
    out = torch.empty(a.shape[1], dtype=a.dtype, device=a.device)
    column_dot_kernel(a.numpy(), b.numpy(), out.numpy())
    return out


def pattern(a, b):
    return (a * b).sum(0)


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return column_dot
