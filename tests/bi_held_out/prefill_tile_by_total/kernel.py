"""Causal ragged prefill; key tiles are wider once the packed batch holds enough tokens."""
import torch
import triton
import triton.language as tl


@triton.jit
def _prefill(q_ptr, k_ptr, v_ptr, cu_ptr, o_ptr, scale, H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
             BN: tl.constexpr):
    qt, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    lo = tl.load(cu_ptr + b)
    n = tl.load(cu_ptr + b + 1) - lo
    if qt * BM < n:
        i = qt * BM + tl.arange(0, BM)
        d = tl.arange(0, D)
        q = tl.load(q_ptr + ((lo + i) * H + h)[:, None] * D + d[None, :], mask=(i < n)[:, None], other=0.0)
        m = tl.full((BM,), -1.0e30, tl.float32)
        den = tl.zeros((BM,), tl.float32)
        acc = tl.zeros((BM, D), tl.float32)
        for s0 in range(0, tl.minimum(n, qt * BM + BM), BN):
            j = s0 + tl.arange(0, BN)
            off = ((lo + j) * H + h)[:, None] * D + d[None, :]
            k = tl.load(k_ptr + off, mask=(j < n)[:, None], other=0.0)
            v = tl.load(v_ptr + off, mask=(j < n)[:, None], other=0.0)
            s = tl.dot(q, tl.trans(k)) * scale
            s = tl.where((j[None, :] <= i[:, None]) & (j < n)[None, :], s, -1.0e30)
            mn = tl.maximum(m, tl.max(s, 1))
            p = tl.exp(s - mn[:, None])
            c = tl.exp(m - mn)
            den = den * c + tl.sum(p, 1)
            acc = tl.dot(p.to(v.dtype), v, acc * c[:, None])
            m = mn
        o = acc / den[:, None]
        tl.store(o_ptr + ((lo + i) * H + h)[:, None] * D + d[None, :], o, mask=(i < n)[:, None])


class Tiles(tuple):
    SMALL = (64, 32)
    BIG = (64, 64)

    @staticmethod
    def select(rows):
        return Tiles.BIG if rows >= 1500 else Tiles.SMALL


def run(q, k, v, cu_seqlens):
    packed, heads, dim = q.shape
    bm, bn = Tiles.select(packed)
    longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
    o = torch.empty((packed, heads, dim), device=q.device, dtype=torch.float32)
    grid = (triton.cdiv(longest, bm), heads, cu_seqlens.numel() - 1)
    _prefill[grid](q, k, v, cu_seqlens, o, dim**-0.5, heads, dim, bm, bn, num_warps=4)
    return o
