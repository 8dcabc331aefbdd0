"""Chunked linear attention with a scalar decay a head: S_t = exp(-0.1 g_t) S_{t-1} + k_t v_t^T, o_t = q_t S_t."""

import torch
import triton
import triton.language as tl

CHUNK_BY_BATCH = [(4, 16), (16, 32), (64, 64), (10**9, 128)]


@triton.jit
def chunk_fwd(q, k, v, g, o, T, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    causal = i[:, None] >= i[None, :]
    state = tl.zeros((D, D), tl.float32)
    for t0 in range(0, T, C):
        tok = (b * T + t0 + i) * H + h
        qc = tl.load(q + tok[:, None] * D + d[None, :]).to(tl.float32)
        kc = tl.load(k + tok[:, None] * D + d[None, :]).to(tl.float32)
        vc = tl.load(v + tok[:, None] * D + d[None, :]).to(tl.float32)
        logg = -0.1 * tl.load(g + tok)
        cum = tl.cumsum(logg, 0)
        last = tl.sum(logg, 0)
        att = tl.dot(qc, tl.trans(kc))
        att = tl.where(causal, att * tl.exp(tl.where(causal, cum[:, None] - cum[None, :], 0.0)), 0.0)
        out = tl.dot(qc * tl.exp(cum)[:, None], state) + tl.dot(att, vc)
        tl.store(o + tok[:, None] * D + d[None, :], out)
        state = state * tl.exp(last) + tl.dot(tl.trans(kc * tl.exp(last - cum)[:, None]), vc)


def run(q, k, v, g):
    B, T, H, D = q.shape
    chunk = next(c for limit, c in CHUNK_BY_BATCH if B <= limit)
    o = torch.empty((B, T, H, D), dtype=torch.float32, device=q.device)
    chunk_fwd[(B, H)](q, k, v, g, o, T, H=H, D=D, C=chunk)
    return o
