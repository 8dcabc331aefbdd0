import math

import numba
import torch
from numba import prange


@numba.njit
def short_rows(x, y):
    # the row fits into registers: keep it simple
    for r in range(x.shape[0]):
        m = x[r, 0]
        for c in range(1, x.shape[1]):
            m = max(m, x[r, c])
        s = 0.0
        for c in range(x.shape[1]):
            s += math.exp(x[r, c] - m)
        lse = m + math.log(s)
        for c in range(x.shape[1]):
            y[r, c] = x[r, c] - lse


@numba.njit(parallel=True)
def long_rows(x, y):
    # online maximum and sum: one read less of a long row
    for r in prange(x.shape[0]):
        m = -math.inf
        s = 0.0
        for c in range(x.shape[1]):
            v = x[r, c]
            if v > m:
                s = s * math.exp(m - v) + 1.0
                m = v
            else:
                s += math.exp(v - m)
        lse = m + math.log(s)
        for c in range(x.shape[1]):
            y[r, c] = x[r, c] - lse


CHOICES = ((256, short_rows), (float("inf"), long_rows))


def choose(cols):
    for limit, kernel in CHOICES:
        if cols <= limit:
            return kernel
    raise AssertionError("unreachable")


@torch.fx.wrap
def log_softmax(x):
    y = torch.empty_like(x)
    choose(x.shape[-1])(x.numpy(), y.numpy())
    return y


def pattern(x):
    lse = torch.logsumexp(x, -1, True)
    return x - lse


def replacement_args(x):
    return (x,)


def replacement_func():
    return log_softmax
