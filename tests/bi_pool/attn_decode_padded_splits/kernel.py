import torch
import triton
import triton.language as tl

TOKENS_PER_SPLIT = 96


@triton.jit
def split_kernel(q, k, v, lens, acc_ptr, ml_ptr, S, scale, splits,
                 H: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    sp = tl.program_id(2)
    d = tl.arange(0, D)
    n = tl.load(lens + b)
    qv = tl.load(q + (b * H + h) * D + d).to(tl.float32) * scale
    m = -1e30
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s0 in range(sp * SPAN, tl.minimum(sp * SPAN + SPAN, n), BN):
        s = s0 + tl.arange(0, BN)
        kt = tl.load(k + (b * S + s[:, None]) * D + d[None, :], mask=(s < n)[:, None], other=0.0).to(tl.float32)
        x = tl.where(s < n, tl.sum(kt * qv[None, :], 1), -1e30)
        m1 = tl.maximum(m, tl.max(x, 0))
        p = tl.where(s < n, tl.exp(x - m1), 0.0)
        f = tl.exp(m - m1)
        vt = tl.load(v + (b * S + s[:, None]) * D + d[None, :], mask=(s < n)[:, None], other=0.0).to(tl.float32)
        acc = acc * f + tl.sum(p[:, None] * vt, 0)
        l = l * f + tl.sum(p, 0)
        m = m1
    at = (b * H + h) * splits + sp
    tl.store(acc_ptr + at * D + d, acc)
    tl.store(ml_ptr + at * 2, m)
    tl.store(ml_ptr + at * 2 + 1, l)


@triton.jit
def merge_kernel(acc_ptr, ml_ptr, o, splits, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    m = -1e30
    for sp in range(splits):
        m = tl.maximum(m, tl.load(ml_ptr + (row * splits + sp) * 2))
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for sp in range(splits):
        w = tl.exp(tl.load(ml_ptr + (row * splits + sp) * 2) - m)
        l += w * tl.load(ml_ptr + (row * splits + sp) * 2 + 1)
        acc += w * tl.load(acc_ptr + (row * splits + sp) * D + d)
    tl.store(o + row * D + d, acc / l)


def run(q, k, v, lens):
    B, H, D = q.shape
    S = k.shape[1]
    needed = triton.cdiv(S, TOKENS_PER_SPLIT)
    splits = max(needed, 128 // (B * H))
    acc = torch.empty((B, H, splits, D), dtype=torch.float32, device=q.device)
    ml = torch.empty((B, H, splits, 2), dtype=torch.float32, device=q.device)
    split_kernel[(B, H, splits)](q, k, v, lens, acc, ml, S, D**-0.5, splits, H=H, D=D, SPAN=TOKENS_PER_SPLIT, BN=32)
    o = torch.empty((B, H, D), dtype=torch.float32, device=q.device)
    merge_kernel[(B * H,)](acc, ml, o, splits, D=D)
    return o
