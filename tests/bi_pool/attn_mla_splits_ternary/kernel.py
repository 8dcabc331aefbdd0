"""Multi-head latent attention, decode. Cache rows are [latent | rope]; values are the latent part itself."""

import torch
import triton
import triton.language as tl


@triton.jit
def mla_split_kernel(
    qn_ptr, qr_ptr, cache_ptr, table_ptr, len_ptr, o_ptr, lse_ptr, scale, table_stride,
    H: tl.constexpr, R: tl.constexpr, ROPE: tl.constexpr, PAGE: tl.constexpr,
    NUM_KV_SPLITS: tl.constexpr, BLOCK_N: tl.constexpr,
):
    req = tl.program_id(0)
    split = tl.program_id(1)
    WIDTH: tl.constexpr = R + ROPE
    h = tl.arange(0, H)
    r = tl.arange(0, R)
    e = tl.arange(0, ROPE)
    qn = tl.load(qn_ptr + (req * H + h[:, None]) * R + r[None, :])
    qr = tl.load(qr_ptr + (req * H + h[:, None]) * ROPE + e[None, :])
    n = tl.load(len_ptr + req)
    per = tl.cdiv(n, NUM_KV_SPLITS)
    lo = per * split
    hi = tl.minimum(lo + per, n)
    m = tl.full((H,), -1.0e30, tl.float32)
    z = tl.zeros((H,), tl.float32)
    acc = tl.zeros((H, R), tl.float32)
    for s0 in range(lo, hi, BLOCK_N):
        s = s0 + tl.arange(0, BLOCK_N)
        ok = s < hi
        page = tl.load(table_ptr + req * table_stride + s // PAGE, mask=ok, other=0)
        row = (page * PAGE + s % PAGE) * WIDTH
        c = tl.load(cache_ptr + row[None, :] + r[:, None], mask=ok[None, :], other=0.0)
        kr = tl.load(cache_ptr + row[None, :] + R + e[:, None], mask=ok[None, :], other=0.0)
        qk = tl.dot(qn, c)
        qk = tl.dot(qr, kr, qk) * scale
        qk = tl.where(ok[None, :], qk, -1.0e30)
        m2 = tl.maximum(m, tl.max(qk, 1))
        p = tl.where(ok[None, :], tl.exp(qk - m2[:, None]), 0.0)
        a = tl.exp(m - m2)
        acc = acc * a[:, None] + tl.dot(p.to(c.dtype), tl.trans(c))
        z = z * a + tl.sum(p, 1)
        m = m2
    idx = (req * NUM_KV_SPLITS + split) * H + h
    tl.store(lse_ptr + idx, tl.where(z > 0, m + tl.log(z), float("-inf")))
    tl.store(o_ptr + idx[:, None] * R + r[None, :], acc / tl.where(z > 0, z, 1.0)[:, None])


@triton.jit
def mla_merge_kernel(o_ptr, lse_ptr, y_ptr, H: tl.constexpr, R: tl.constexpr, NUM_KV_SPLITS: tl.constexpr):
    req = tl.program_id(0)
    h = tl.arange(0, H)
    r = tl.arange(0, R)
    m = tl.full((H,), float("-inf"), tl.float32)
    for s in tl.static_range(NUM_KV_SPLITS):
        m = tl.maximum(m, tl.load(lse_ptr + (req * NUM_KV_SPLITS + s) * H + h))
    den = tl.zeros((H,), tl.float32)
    acc = tl.zeros((H, R), tl.float32)
    for s in tl.static_range(NUM_KV_SPLITS):
        idx = (req * NUM_KV_SPLITS + s) * H + h
        w = tl.exp(tl.load(lse_ptr + idx) - m)
        acc += w[:, None] * tl.load(o_ptr + idx[:, None] * R + r[None, :])
        den += w
    tl.store(y_ptr + (req * H + h[:, None]) * R + r[None, :], acc / den[:, None])


def run(q_latent, q_rope, cache, block_table, lens):
    num_requests, H, R = q_latent.shape
    rope = q_rope.shape[-1]
    splits = 8 if num_requests < 32 else 2
    o = torch.empty((num_requests, splits, H, R), dtype=torch.float32, device=cache.device)
    lse = torch.empty((num_requests, splits, H), dtype=torch.float32, device=cache.device)
    mla_split_kernel[(num_requests, splits)](
        q_latent, q_rope, cache, block_table, lens, o, lse, (R + rope) ** -0.5, block_table.stride(0),
        H=H, R=R, ROPE=rope, PAGE=cache.shape[1], NUM_KV_SPLITS=splits, BLOCK_N=32)
    y = torch.empty((num_requests, H, R), dtype=torch.float32, device=cache.device)
    mla_merge_kernel[(num_requests,)](o, lse, y, H=H, R=R, NUM_KV_SPLITS=splits)
    return y
