"""Decode attention, each sequence cut into eight shares of its own length, whatever else is in flight."""
import torch
import triton
import triton.language as tl

NUM_KV_SPLITS = 8


@triton.jit
def shares(Q, K, V, LENS, MID, T, sm_scale, H: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr,
           SPLITS: tl.constexpr, N: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    s = tl.program_id(2)
    length = tl.load(LENS + b)
    each = tl.cdiv(length, SPLITS)
    lo = s * each
    hi = tl.minimum(lo + each, length)
    d = tl.arange(0, D)
    q = tl.load(Q + (b * H + h) * D + d).to(tl.float32)
    kvh = h // (H // HKV)
    peak = -float("inf")
    mass = 0.0
    acc = tl.zeros([D], tl.float32)
    for t0 in range(lo, hi, N):
        t = t0 + tl.arange(0, N)
        at = ((b * T + t)[:, None] * HKV + kvh) * D + d[None, :]
        k = tl.load(K + at, mask=(t < hi)[:, None], other=0.0).to(tl.float32)
        v = tl.load(V + at, mask=(t < hi)[:, None], other=0.0).to(tl.float32)
        z = tl.where(t < hi, tl.sum(k * q[None, :], 1) * sm_scale, -float("inf"))
        new = tl.maximum(peak, tl.max(z, 0))
        w = tl.exp(z - new)
        r = tl.exp(peak - new)
        acc = acc * r + tl.sum(w[:, None] * v, 0)
        mass = mass * r + tl.sum(w, 0)
        peak = new
    row = MID + ((b * H + h) * SPLITS + s) * (D + 2)
    tl.store(row + d, acc)
    tl.store(row + D, peak)
    tl.store(row + D + 1, mass)


@triton.jit
def join(MID, O, H: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    i = tl.arange(0, SPLITS)
    d = tl.arange(0, D)
    rows = MID + ((b * H + h) * SPLITS + i) * (D + 2)
    peaks = tl.load(rows + D)
    w = tl.exp(peaks - tl.max(peaks, 0))
    mass = tl.sum(w * tl.load(rows + D + 1), 0)
    acc = tl.load(rows[:, None] + d[None, :])
    tl.store(O + (b * H + h) * D + d, tl.sum(acc * w[:, None], 0) / mass)


def run(q, k_cache, v_cache, seq_lens):
    num_seqs, H, D = q.shape
    _, T, hkv, _ = k_cache.shape
    mid = torch.empty((num_seqs, H, NUM_KV_SPLITS, D + 2), dtype=torch.float32, device=q.device)
    o = torch.empty((num_seqs, H, D), dtype=torch.float32, device=q.device)
    if num_seqs == 0:
        return o
    shares[(num_seqs, H, NUM_KV_SPLITS)](q, k_cache, v_cache, seq_lens, mid, T, D**-0.5, H=H, HKV=hkv, D=D,
                                         SPLITS=NUM_KV_SPLITS, N=32)
    join[(num_seqs, H)](mid, o, H=H, D=D, SPLITS=NUM_KV_SPLITS)
    return o
