"""Decode attention cut by the cache's length; the order of the grid's axes is a matter of L2 reuse only."""
import torch
import triton
import triton.language as tl


@triton.jit
def cut_attention(Q, K, V, LSE, PART, scale, T, per_cut, H: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
                  CUTS_FIRST: tl.constexpr):
    if CUTS_FIRST:
        cut = tl.program_id(0)
        bh = tl.program_id(1)
        cuts = tl.num_programs(0)
    else:
        bh = tl.program_id(0)
        cut = tl.program_id(1)
        cuts = tl.num_programs(1)
    d = tl.arange(0, D)
    q = tl.load(Q + bh * D + d).to(tl.float32) * scale
    top = -float("inf")
    den = 0.0
    num = tl.zeros([D], tl.float32)
    end = tl.minimum((cut + 1) * per_cut, T)
    for t0 in range(cut * per_cut, end, N):
        t = t0 + tl.arange(0, N)
        p = (bh * T + t)[:, None] * D + d[None, :]
        k = tl.load(K + p, mask=(t < end)[:, None], other=0.0).to(tl.float32)
        s = tl.where(t < end, tl.sum(q[None, :] * k, 1), -float("inf"))
        top2 = tl.maximum(top, tl.max(s, 0))
        a = tl.exp(top - top2)
        w = tl.exp(s - top2)
        v = tl.load(V + p, mask=(t < end)[:, None], other=0.0).to(tl.float32)
        num = num * a + tl.sum(w[:, None] * v, 0)
        den = den * a + tl.sum(w, 0)
        top = top2
    tl.store(PART + (bh * cuts + cut) * D + d, num / den)
    tl.store(LSE + bh * cuts + cut, top + tl.log(den))


@triton.jit
def blend(PART, LSE, O, CUTS, D: tl.constexpr):
    bh = tl.program_id(0)
    d = tl.arange(0, D)
    top = -float("inf")
    for c in range(CUTS):
        top = tl.maximum(top, tl.load(LSE + bh * CUTS + c))
    den = 0.0
    num = tl.zeros([D], tl.float32)
    for c in range(CUTS):
        w = tl.exp(tl.load(LSE + bh * CUTS + c) - top)
        num += w * tl.load(PART + (bh * CUTS + c) * D + d)
        den += w
    tl.store(O + bh * D + d, num / den)


def cuts_of(cache_len):
    per = 256 if cache_len >= 1024 else 64
    return triton.cdiv(cache_len, per), per


def run(q, k, v):
    b, h, d = q.shape
    t = k.shape[2]
    num_splits, per = cuts_of(t)
    part = torch.empty((b * h, num_splits, d), dtype=torch.float32, device=q.device)
    lse = torch.empty((b * h, num_splits), dtype=torch.float32, device=q.device)
    out = torch.empty((b, h, d), dtype=torch.float32, device=q.device)
    cuts_first = b * h <= 64
    grid = (num_splits, b * h) if cuts_first else (b * h, num_splits)
    cut_attention[grid](q, k, v, lse, part, d**-0.5, t, per, H=h, D=d, N=64, CUTS_FIRST=cuts_first, num_warps=4)
    blend[(b * h,)](part, lse, out, num_splits, D=d)
    return out
