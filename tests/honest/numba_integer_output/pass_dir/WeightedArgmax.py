import numba
import numpy as np
import torch
from numba import float32, int64, void


@numba.njit(void(float32[:, ::1], float32[::1], int64[::1], float32[::1]))
def argmax_rows(x, w, index, value):
    rows, cols = x.shape
    scaled = np.empty(cols, dtype=np.float32)
    for r in range(rows):
        for c in range(cols):
            scaled[c] = x[r, c] * w[c]
        best = 0
        for c in range(1, cols):
            if scaled[c] > scaled[best]:
                best = c
        index[r] = best
        value[r] = scaled[best]


@torch.fx.wrap
def weighted_argmax(x, w):
    rows = x.shape[0]
    index = torch.empty((rows,), dtype=torch.int64)
    value = torch.empty((rows,), dtype=torch.float32)
    argmax_rows(x.numpy(), w.numpy(), index.numpy(), value.numpy())
    return index, value


def pattern(x, w):
    y = x * w
    return torch.argmax(y, -1), torch.amax(y, -1)


def replacement_args(x, w):
    return (x, w)


def replacement_func():
    return weighted_argmax
