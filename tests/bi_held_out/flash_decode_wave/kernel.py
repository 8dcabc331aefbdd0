"""Split-KV decoding; how many splits is decided by how well they fill the last wave (see waves.py)."""
import math

import torch
import triton
import triton.language as tl

import waves

KV_TILE = 64


@triton.jit
def partial_attention(Q, K, V, ACC, MAXES, SUMS, scale_log2, T, tiles_per_split, HEADS: tl.constexpr,
                      DIM: tl.constexpr, TILE: tl.constexpr):
    bh = tl.program_id(0)
    split = tl.program_id(1)
    count = tl.num_programs(1)
    d = tl.arange(0, DIM)
    q = tl.load(Q + bh * DIM + d).to(tl.float32) * scale_log2
    peak = -float("inf")
    mass = 0.0
    acc = tl.zeros([DIM], tl.float32)
    for j in range(split * tiles_per_split, tl.minimum((split + 1) * tiles_per_split, tl.cdiv(T, TILE))):
        t = j * TILE + tl.arange(0, TILE)
        p = (bh * T + t[:, None]) * DIM + d[None, :]
        k = tl.load(K + p, mask=(t < T)[:, None], other=0.0).to(tl.float32)
        s = tl.where(t < T, tl.sum(k * q[None, :], 1), -float("inf"))
        peak2 = tl.maximum(peak, tl.max(s, 0))
        e = tl.exp2(s - peak2)
        f = tl.exp2(peak - peak2)
        v = tl.load(V + p, mask=(t < T)[:, None], other=0.0).to(tl.float32)
        acc = acc * f + tl.sum(e[:, None] * v, 0)
        mass = mass * f + tl.sum(e, 0)
        peak = peak2
    at = bh * count + split
    tl.store(ACC + at * DIM + d, acc)
    tl.store(MAXES + at, peak)
    tl.store(SUMS + at, mass)


def merge(acc, maxes, sums):
    top = maxes.amax(-1, keepdim=True)
    w = torch.exp2(maxes - top)
    out = torch.zeros_like(acc[..., 0, :])
    den = torch.zeros_like(sums[..., 0])
    for i in range(acc.shape[-2]):
        out = out + acc[..., i, :] * w[..., i, None]
        den = den + sums[..., i] * w[..., i]
    return out / den[..., None]


@torch.inference_mode()
def run(q, k, v):
    b, h, d = q.shape
    t = k.shape[2]
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    tiles = triton.cdiv(t, KV_TILE)
    pieces = waves.choose(b * h, sms * 2, tiles, 32)
    per = triton.cdiv(tiles, pieces)
    pieces = triton.cdiv(tiles, per)
    acc = torch.empty((b, h, pieces, d), dtype=torch.float32, device=q.device)
    maxes = torch.empty((b, h, pieces), dtype=torch.float32, device=q.device)
    sums = torch.empty_like(maxes)
    partial_attention[(b * h, pieces)](q, k, v, acc, maxes, sums, math.log2(math.e) / math.sqrt(d), t, per,
                                       HEADS=h, DIM=d, TILE=KV_TILE)
    return merge(acc, maxes, sums)
