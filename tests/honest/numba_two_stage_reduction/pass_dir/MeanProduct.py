import numba
import numpy as np
import torch

NUM_CHUNKS = 4


@numba.njit(parallel=True)
def partial_sums(a, b, partial):
    rows = a.shape[0]
    chunks = partial.shape[0]
    step = (rows + chunks - 1) // chunks
    for k in numba.prange(chunks):
        for r in range(k * step, min((k + 1) * step, rows)):
            for c in range(a.shape[1]):
                partial[k, c] += np.float64(a[r, c]) * b[r, c]


@numba.njit
def combine(partial, out, rows):
    for k in range(partial.shape[0]):
        for c in range(partial.shape[1]):
            out[c] += partial[k, c] / rows


@torch.fx.wrap
def mean_product(a, b):
    cols = a.shape[1]
    partial = torch.zeros((NUM_CHUNKS, cols), dtype=torch.float64)
    total = np.zeros(cols, dtype=np.float64)
    partial_sums(a.numpy(), b.numpy(), partial.numpy())
    combine(partial.numpy(), total, a.shape[0])
    return torch.from_numpy(total).to(a.dtype)


def pattern(a, b):
    return (a * b).mean(0)


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return mean_product
