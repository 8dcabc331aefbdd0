import numba
import numpy as np
import torch

NEG_INF = -np.inf


@numba.njit
def masked_softmax_kernel(x, mask, out):
    for r in range(x.shape[0]):
        m = NEG_INF
        for c in range(x.shape[1]):
            if not mask[r, c]:
                m = max(m, x[r, c])
        s = 0.0
        for c in range(x.shape[1]):
            e = 0.0 if mask[r, c] else np.exp(np.float64(x[r, c]) - m)
            out[r, c] = e
            s += e
        for c in range(x.shape[1]):
            out[r, c] = out[r, c] / s


@torch.fx.wrap
def masked_softmax(x, mask):
    cols = x.shape[-1]
    out = torch.empty_like(x)
    masked_softmax_kernel(x.view(-1, cols).numpy(), mask.view(-1, cols).numpy(), out.view(-1, cols).numpy())
    return out


def pattern(x, mask):
    filled = x.masked_fill(mask, float("-inf"))
    return torch.softmax(filled, -1)


def replacement_args(x, mask):
    return (x, mask)


def replacement_func():
    return masked_softmax
