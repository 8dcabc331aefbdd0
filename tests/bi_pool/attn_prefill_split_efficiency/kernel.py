"""Prefill of a 16-token chunk against its whole history (bottom-right causal), KV-split for occupancy."""

import math

import torch
import triton
import triton.language as tl


def search_splits(work_tiles, sms, kv_tiles, limit=8):
    """Smallest split count whose last wave is at least 85% as full as the best one."""
    if work_tiles >= 0.8 * sms:
        return 1
    limit = min(limit, sms, kv_tiles)
    efficiency = {}
    for n in range(1, limit + 1):
        if n > 1 and math.ceil(kv_tiles / n) == math.ceil(kv_tiles / (n - 1)):
            continue
        waves = work_tiles * n / sms
        efficiency[n] = waves / math.ceil(waves)
    best = max(efficiency.values())
    return next(n for n, e in efficiency.items() if e >= 0.85 * best)


@triton.jit
def chunk_fwd(Q, K, V, O, LSE, S, scale, tiles_per_split, nsplit,
              H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    sp = tl.program_id(2)
    t = tl.arange(0, T)
    d = tl.arange(0, D)
    q = tl.load(Q + ((b * T + t[:, None]) * H + h) * D + d[None, :])
    m = tl.full((T,), -1e30, tl.float32)
    l = tl.zeros((T,), tl.float32)
    acc = tl.zeros((T, D), tl.float32)
    lo = sp * tiles_per_split * BN
    for s0 in range(lo, tl.minimum(lo + tiles_per_split * BN, S), BN):
        s = s0 + tl.arange(0, BN)
        at = ((b * S + s) * H + h) * D
        k = tl.load(K + at[None, :] + d[:, None], mask=(s < S)[None, :], other=0.0)
        ok = (s[None, :] <= t[:, None] + (S - T)) & (s < S)[None, :]
        x = tl.where(ok, tl.dot(q, k) * scale, -1e30)
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.where(ok, tl.exp(x - m1[:, None]), 0.0)
        c = tl.exp(m - m1)
        v = tl.load(V + at[:, None] + d[None, :], mask=(s < S)[:, None], other=0.0)
        acc = acc * c[:, None] + tl.dot(p.to(v.dtype), v)
        l = l * c + tl.sum(p, 1)
        m = m1
    w = ((b * H + h) * nsplit + sp) * T + t
    tl.store(LSE + w * 2, m)
    tl.store(LSE + w * 2 + 1, l)
    tl.store(O + w[:, None] * D + d[None, :], acc)


@triton.jit
def chunk_merge(O, LSE, Y, nsplit, H: tl.constexpr, T: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    t = tl.arange(0, T)
    d = tl.arange(0, D)
    m = tl.full((T,), -1e30, tl.float32)
    l = tl.zeros((T,), tl.float32)
    acc = tl.zeros((T, D), tl.float32)
    for sp in range(nsplit):
        w = ((b * H + h) * nsplit + sp) * T + t
        ms = tl.load(LSE + w * 2)
        m1 = tl.maximum(m, ms)
        acc = acc * tl.exp(m - m1)[:, None] + tl.exp(ms - m1)[:, None] * tl.load(O + w[:, None] * D + d[None, :])
        l = l * tl.exp(m - m1) + tl.exp(ms - m1) * tl.load(LSE + w * 2 + 1)
        m = m1
    tl.store(Y + ((b * T + t[:, None]) * H + h) * D + d[None, :], acc / l[:, None])


def run(q, k, v):
    B, T, H, D = q.shape
    S = k.shape[1]
    BN = 32
    kv_tiles = triton.cdiv(S, BN)
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    n = search_splits(B * H, sms, kv_tiles)
    O = torch.empty((B, H, n, T, D), dtype=torch.float32, device=q.device)
    LSE = torch.empty((B, H, n, T, 2), dtype=torch.float32, device=q.device)
    chunk_fwd[(B, H, n)](q, k, v, O, LSE, S, D**-0.5, triton.cdiv(kv_tiles, n), n, H=H, T=T, D=D, BN=BN)
    Y = torch.empty((B, T, H, D), dtype=torch.float32, device=q.device)
    chunk_merge[(B, H)](O, LSE, Y, n, H=H, T=T, D=D)
    return Y
