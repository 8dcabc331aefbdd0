import numba
import torch


@numba.njit
def l1_kernel(a, b, out):
    rows, cols = a.shape
    for r in range(rows):
        total = 0.0
        for c in range(cols):
            total += abs(a[r, c] - b[r, c])
        out[r] = total


@torch.fx.wrap
def l1_rows(a, b):
    out = torch.empty(a.shape[:-1], dtype=a.dtype, device=a.device)
    l1_kernel(a.numpy(), b.numpy(), out.numpy())
    return out


def pattern(a, b):
    difference = a - b
    distance = torch.abs(difference)
    return distance.sum(-1)


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return l1_rows
