"""Expert choice: expert e serves the tokens with the largest affinity to it, half of the batch each."""

import torch
import triton
import triton.language as tl


@triton.jit
def chosen_gemv(x, weight, w, y, K: tl.constexpr, E: tl.constexpr, N: tl.constexpr):
    t = tl.program_id(0)
    k = tl.arange(0, K)
    n = tl.arange(0, N)
    xv = tl.load(x + t * K + k).to(tl.float32)
    acc = tl.zeros((N,), tl.float32)
    for e in range(E):
        g = tl.load(weight + t * E + e)
        if g > 0.0:
            acc += g * tl.sum(xv[:, None] * tl.load(w + (e * K + k[:, None]) * N + n[None, :]).to(tl.float32), 0)
    tl.store(y + t * N + n, acc)


def select(affinity, per_expert):
    p = torch.sigmoid(affinity)
    _, tokens = torch.topk(affinity, per_expert, dim=0)
    weight = torch.zeros_like(p)
    weight.scatter_(0, tokens, p.gather(0, tokens))
    return weight


def run(x, affinity, w):
    num_tokens, K = x.shape
    E, _, N = w.shape
    weight = select(affinity, per_expert=max(1, num_tokens // 2))
    y = torch.empty((num_tokens, N), dtype=torch.float32, device=x.device)
    chosen_gemv[(num_tokens,)](x, weight, w, y, K=K, E=E, N=N)
    return y
