"""Ragged prefill with a sliding window; the grid covers the longest sequence, extra programs leave at once."""
import torch
import triton
import triton.language as tl


@triton.jit
def _tile(q_ptr, k_ptr, v_ptr, o_ptr, lo, n, qt, h, scale, WINDOW: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
          BM: tl.constexpr, BN: tl.constexpr):
    i = qt * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + ((lo + i) * H + h)[:, None] * D + d[None, :], mask=(i < n)[:, None], other=0.0)
    m = tl.full((BM,), -1.0e30, tl.float32)
    den = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    start = tl.maximum(qt * BM - WINDOW, 0) // BN * BN
    for s0 in range(start, tl.minimum(n, qt * BM + BM), BN):
        j = s0 + tl.arange(0, BN)
        off = ((lo + j) * H + h)[:, None] * D + d[None, :]
        k = tl.load(k_ptr + off, mask=(j < n)[:, None], other=0.0)
        v = tl.load(v_ptr + off, mask=(j < n)[:, None], other=0.0)
        gap = i[:, None] - j[None, :]
        ok = (gap >= 0) & (gap < WINDOW)
        s = tl.where(ok, tl.dot(q, tl.trans(k)) * scale, -1.0e30)
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.where(ok, tl.exp(s - mn[:, None]), 0.0)
        c = tl.exp(m - mn)
        den = den * c + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * c[:, None])
        m = mn
    o = acc / tl.maximum(den, 1.0e-20)[:, None]
    tl.store(o_ptr + ((lo + i) * H + h)[:, None] * D + d[None, :], o.to(tl.float16), mask=(i < n)[:, None])


@triton.jit
def _swa(q_ptr, k_ptr, v_ptr, o_ptr, cu_ptr, scale, WINDOW: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
         BM: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    qt = tl.program_id(1)
    lo = tl.load(cu_ptr + b)
    n = tl.load(cu_ptr + b + 1) - lo
    if qt * BM >= n:
        return
    _tile(q_ptr, k_ptr, v_ptr, o_ptr, lo, n, qt, tl.program_id(2), scale, WINDOW, H, D, BM, BN)


def run(q, k, v, cu):
    total_q, heads, dim = q.shape
    batch = len(cu) - 1
    max_q = int(torch.diff(cu).max().item())
    BM, BN = (64, 32) if dim <= 64 else (32, 32)
    out = torch.empty_like(q)
    _swa[(batch, triton.cdiv(max_q, BM), heads)](q, k, v, out, cu, dim**-0.5, 48, heads, dim, BM, BN, num_warps=4)
    return out
