"""Memory-bounded contraction: the product tensor [rows, n, piece] must stay under a budget of elements."""

import torch

BUDGET = 1 << 21


def _halve(t):
    while t.shape[-1] > 1:
        mid = t.shape[-1] // 2
        t = t[..., :mid] + t[..., mid:]
    return t[..., 0]


def run(x, w):
    rows, k = x.shape
    n = w.shape[0]
    piece = k
    while rows * n * piece > BUDGET and piece > 32:
        piece //= 2
    y = torch.zeros((rows, n), dtype=torch.float32, device=x.device)
    for start in range(0, k, piece):
        prod = x[:, None, start:start + piece] * w[None, :, start:start + piece]
        y = y + _halve(prod)
    return y
