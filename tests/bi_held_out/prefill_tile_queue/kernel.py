"""Ragged bidirectional attention: the host lists (sequence, tile) pairs and resident programs walk the list."""
import numpy as np
import torch
import triton
import triton.language as tl

BM = 32


@triton.jit
def _walk(q_ptr, k_ptr, v_ptr, cu_ptr, seq_ptr, tile_ptr, o_ptr, n_items, workers, scale, H: tl.constexpr,
          D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    h = tl.program_id(1)
    d = tl.arange(0, D)
    for it in range(tl.program_id(0), n_items, workers):
        b = tl.load(seq_ptr + it)
        t = tl.load(tile_ptr + it)
        lo = tl.load(cu_ptr + b)
        n = tl.load(cu_ptr + b + 1) - lo
        i = t * BM + tl.arange(0, BM)
        q = tl.load(q_ptr + ((lo + i) * H + h)[:, None] * D + d[None, :], mask=(i < n)[:, None], other=0.0)
        m = tl.full((BM,), -1.0e30, tl.float32)
        den = tl.zeros((BM,), tl.float32)
        acc = tl.zeros((BM, D), tl.float32)
        for s0 in range(0, n, BN):
            j = s0 + tl.arange(0, BN)
            off = ((lo + j) * H + h)[:, None] * D + d[None, :]
            k = tl.load(k_ptr + off, mask=(j < n)[:, None], other=0.0)
            v = tl.load(v_ptr + off, mask=(j < n)[:, None], other=0.0)
            s = tl.where((j < n)[None, :], tl.dot(q, tl.trans(k)) * scale, -1.0e30)
            mn = tl.maximum(m, tl.max(s, 1))
            p = tl.exp(s - mn[:, None])
            c = tl.exp(m - mn)
            den = den * c + tl.sum(p, 1)
            acc = tl.dot(p.to(v.dtype), v, acc * c[:, None])
            m = mn
        o = (acc / den[:, None]).to(tl.float16)
        tl.store(o_ptr + ((lo + i) * H + h)[:, None] * D + d[None, :], o, mask=(i < n)[:, None])


def _pairs(lengths):
    for b, n in enumerate(lengths):
        for t in range((n + BM - 1) // BM):
            yield b, t


def run(q, k, v, cu):
    lens = np.diff(cu.cpu().numpy())
    # longest sequences first: better balance at the end of the list
    items = sorted(_pairs(lens.tolist()), key=lambda p: -lens[p[0]])
    seqs, tiles = (torch.tensor(c, dtype=torch.int32, device=q.device) for c in zip(*items))
    heads, dim = q.shape[1:]
    workers = min(len(items), max(1, 264 // heads))
    out = torch.empty_like(q)
    _walk[(workers, heads)](q, k, v, cu, seqs, tiles, out, len(items), workers, dim**-0.5, heads, dim, BM, 32)
    return out
