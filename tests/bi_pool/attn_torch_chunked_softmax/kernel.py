"""Decode attention from elementwise PyTorch operators, in chunks of the KV length under a memory budget."""

import torch

ELEMENT_BUDGET = 1 << 20


def fold(t, dim):
    """Sum over `dim` by halving; the size is a power of two."""
    n = t.shape[dim]
    while n > 1:
        n //= 2
        t = t.narrow(dim, 0, n) + t.narrow(dim, n, n)
    return t.squeeze(dim)


def attend(q, k, v):
    logits = fold(q.unsqueeze(2) * k.unsqueeze(1), 3)
    top = logits.amax(-1, keepdim=True)
    p = torch.exp(logits - top)
    return top.squeeze(-1), fold(p, 2), fold(p.unsqueeze(-1) * v.unsqueeze(1), 2)


def run(q, k, v):
    bsz, heads, dim = q.shape
    length = k.shape[1]
    num_chunks = 1
    while bsz * heads * dim * (length // num_chunks) > ELEMENT_BUDGET and num_chunks < 16:
        num_chunks *= 2
    q = q * dim**-0.5
    state = None
    for kc, vc in zip(k.chunk(num_chunks, dim=1), v.chunk(num_chunks, dim=1)):
        m, l, o = attend(q, kc, vc)
        if state is None:
            state = (m, l, o)
            continue
        m0, l0, o0 = state
        top = torch.maximum(m0, m)
        a, b = torch.exp(m0 - top), torch.exp(m - top)
        state = (top, l0 * a + l * b, o0 * a[..., None] + o * b[..., None])
    return state[2] / state[1][..., None]
