import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(q, kv, lens, o, ml, S, scale, splits, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    sp = tl.program_id(1)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    n = tl.load(lens + b)
    chunk = tl.cdiv(n, splits)
    lo = sp * chunk
    hi = tl.minimum(lo + chunk, n)
    qt = tl.load(q + (b * H + h[:, None]) * D + d[None, :], mask=(h < H)[:, None], other=0.0)
    m = tl.full((16,), -1e30, tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for s0 in range(lo, hi, BN):
        s = s0 + tl.arange(0, BN)
        ok = s < hi
        t = tl.load(kv + (b * S + s[:, None]) * D + d[None, :], mask=ok[:, None], other=0.0)
        x = tl.where(ok[None, :], tl.dot(qt, tl.trans(t)) * scale, -1e30)
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.where(ok[None, :], tl.exp(x - m1[:, None]), 0.0)
        f = tl.exp(m - m1)
        acc = acc * f[:, None] + tl.dot(p.to(t.dtype), t)
        l = l * f + tl.sum(p, 1)
        m = m1
    at = (b * splits + sp) * H + h
    tl.store(o + at[:, None] * D + d[None, :], acc, mask=(h < H)[:, None])
    tl.store(ml + at * 2, m, mask=h < H)
    tl.store(ml + at * 2 + 1, l, mask=h < H)


@triton.jit
def merge_kernel(o, ml, y, splits, H: tl.constexpr, D: tl.constexpr):
    b, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    m = -1e30
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for sp in range(splits):
        at = (b * splits + sp) * H + h
        ms = tl.load(ml + at * 2)
        m1 = tl.maximum(m, ms)
        acc = acc * tl.exp(m - m1) + tl.exp(ms - m1) * tl.load(o + at * D + d)
        l = l * tl.exp(m - m1) + tl.exp(ms - m1) * tl.load(ml + at * 2 + 1)
        m = m1
    tl.store(y + (b * H + h) * D + d, acc / l)


def run(q, kv, seq_lens):
    B, H, D = q.shape
    max_seq_len = int(seq_lens.max())
    splits = triton.cdiv(max_seq_len, 128)
    o = torch.empty((B, splits, H, D), dtype=torch.float32, device=q.device)
    ml = torch.empty((B, splits, H, 2), dtype=torch.float32, device=q.device)
    part_kernel[(B, splits)](q, kv, seq_lens, o, ml, kv.shape[1], D**-0.5, splits, H=H, D=D, BN=32)
    y = torch.empty((B, H, D), dtype=torch.float32, device=q.device)
    merge_kernel[(B, H)](o, ml, y, splits, H=H, D=D)
    return y
