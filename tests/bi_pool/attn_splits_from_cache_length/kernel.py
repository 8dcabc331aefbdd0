import torch
import triton
import triton.language as tl


def num_splits_for(max_seq_len: int, heads: int) -> int:
    tokens_per_split = 128 if heads >= 4 else 64
    return min(16, triton.cdiv(max_seq_len, tokens_per_split))


@triton.jit
def decode_split(q, k, v, lens, o, lse, S, scale, splits,
                 H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    sp = tl.program_id(1)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    hm = h < H
    qv = tl.load(q + (b * H + h[:, None]) * D + d[None, :], mask=hm[:, None], other=0.0)
    n = tl.load(lens + b)
    width = tl.cdiv(S, splits)
    lo = sp * width
    hi = tl.minimum(lo + width, n)
    m = tl.full((16,), -1e30, tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for s0 in range(lo, hi, BN):
        s = s0 + tl.arange(0, BN)
        ok = s < hi
        kt = tl.load(k + (b * S + s[None, :]) * D + d[:, None], mask=ok[None, :], other=0.0)
        vt = tl.load(v + (b * S + s[:, None]) * D + d[None, :], mask=ok[:, None], other=0.0)
        x = tl.where(ok[None, :], tl.dot(qv, kt) * scale, -1e30)
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - m1[:, None])
        f = tl.exp(m - m1)
        acc = acc * f[:, None] + tl.dot(p.to(vt.dtype), vt)
        l = l * f + tl.sum(p, 1)
        m = m1
    row = (b * splits + sp) * H + h
    l_safe = tl.where(l > 0.0, l, 1.0)
    tl.store(o + row[:, None] * D + d[None, :], acc / l_safe[:, None], mask=hm[:, None])
    tl.store(lse + row, tl.where(l > 0.0, m + tl.log(l_safe), float("-inf")), mask=hm)


@triton.jit
def decode_combine(o, lse, y, splits, H: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    m = float("-inf")
    for sp in range(splits):
        m = tl.maximum(m, tl.load(lse + (b * splits + sp) * H + h))
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for sp in range(splits):
        row = (b * splits + sp) * H + h
        w = tl.exp(tl.load(lse + row) - m)
        acc += w * tl.load(o + row * D + d)
        den += w
    tl.store(y + (b * H + h) * D + d, acc / den)


def run(q, k, v, lens):
    B, H, D = q.shape
    S = k.shape[1]
    splits = num_splits_for(S, H)
    o = torch.empty((B, splits, H, D), dtype=torch.float32, device=q.device)
    lse = torch.empty((B, splits, H), dtype=torch.float32, device=q.device)
    decode_split[(B, splits)](q, k, v, lens, o, lse, S, D**-0.5, splits, H=H, D=D, BN=32)
    y = torch.empty((B, H, D), dtype=torch.float32, device=q.device)
    decode_combine[(B, H)](o, lse, y, splits, H=H, D=D)
    return y
