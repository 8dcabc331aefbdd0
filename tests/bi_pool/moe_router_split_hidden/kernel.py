"""Router: logits = 0.05 x W, then a softmax over the experts."""

import torch
import triton
import triton.language as tl


@triton.jit
def logits_kernel(x, w, part, K, E: tl.constexpr, SLICE: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0)
    s = tl.program_id(1)
    e = tl.arange(0, E)
    acc = tl.zeros((E,), tl.float32)
    for k0 in range(0, SLICE, BK):
        k = s * SLICE + k0 + tl.arange(0, BK)
        xv = tl.load(x + t * K + k).to(tl.float32)
        acc += tl.sum(xv[:, None] * tl.load(w + k[:, None] * E + e[None, :]).to(tl.float32), 0)
    tl.store(part + (t * tl.num_programs(1) + s) * E + e, acc)


@triton.jit
def softmax_kernel(part, probs, slices, alpha, E: tl.constexpr):
    t = tl.program_id(0)
    e = tl.arange(0, E)
    z = tl.zeros((E,), tl.float32)
    for s in range(slices):
        z += tl.load(part + (t * slices + s) * E + e)
    z = z * alpha
    p = tl.exp(z - tl.max(z, 0))
    tl.store(probs + t * E + e, p / tl.sum(p, 0))


def num_slices(tokens):
    slices = 16
    for limit in (4, 16, 64):
        if tokens > limit:
            slices //= 2
    return slices


def run(x, w):
    T, K = x.shape
    E = w.shape[1]
    n = num_slices(T)
    part = torch.empty((T, n, E), dtype=torch.float32, device=x.device)
    logits_kernel[(T, n)](x, w, part, K, E=E, SLICE=K // n, BK=32)
    probs = torch.empty((T, E), dtype=torch.float32, device=x.device)
    softmax_kernel[(T,)](part, probs, n, 0.05, E=E)
    return probs
