import math

import numba as nb
import numpy as np
import torch
from torch import fx

SCALE = 1.0 / math.sqrt(64)  # the 0.125 of the graph


@nb.njit(inline="always")
def row_max(row, scale):
    m = -math.inf
    for v in row:
        if v * scale > m:
            m = v * scale
    return m


@nb.njit(inline="always")
def shifted_exp(v, scale, m):
    return math.exp(v * scale - m)


@nb.njit(fastmath={"contract", "nsz"})
def softmax_rows(x, y, scale):
    for r in range(x.shape[0]):
        m = row_max(x[r], scale)
        denom = 0.0
        for c in range(x.shape[1]):
            e = shifted_exp(x[r, c], scale, m)
            y[r, c] = e
            denom += e
        inv = 1.0 / denom
        for c in range(x.shape[1]):
            y[r, c] = y[r, c] * inv


@fx.wrap
def scaled_softmax(x):
    n = x.shape[-1]
    y = torch.empty_like(x)
    softmax_rows(x.view(-1, n).numpy(), y.view(-1, n).numpy(), SCALE)
    return y


def pattern(x):
    scaled = x * 0.125
    return torch.nn.functional.softmax(scaled, dim=-1, dtype=torch.float32)


def replacement_args(x):
    return (x,)


def replacement_func():
    return scaled_softmax
