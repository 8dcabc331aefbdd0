import torch
import triton
import triton.language as tl


@triton.jit
def single_head(q, k, v, lens, o, S, scale, H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    kvh = h * HK // H
    d = tl.arange(0, D)
    qv = tl.load(q + (b * H + h) * D + d).to(tl.float32) * scale
    n = tl.load(lens + b)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s0 in range(0, n, BN):
        s = s0 + tl.arange(0, BN)
        ok = s < n
        at = ((b * S + s) * HK + kvh) * D
        x = tl.sum(tl.load(k + at[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32) * qv[None, :], 1)
        x = tl.where(ok, x, float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 0))
        p = tl.exp(x - m1)
        f = tl.exp(m - m1)
        vt = tl.load(v + at[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        acc = acc * f + tl.sum(p[:, None] * vt, 0)
        l = l * f + tl.sum(p, 0)
        m = m1
    tl.store(o + (b * H + h) * D + d, acc / l)


@triton.jit
def packed_heads(q, k, v, lens, o, S, scale, H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    kvh = tl.program_id(1)
    G: tl.constexpr = H // HK
    g = tl.arange(0, 16)
    d = tl.arange(0, D)
    head = kvh * G + g
    ok_h = g < G
    qv = tl.load(q + (b * H + head[:, None]) * D + d[None, :], mask=ok_h[:, None], other=0.0)
    n = tl.load(lens + b)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for s0 in range(0, n, BN):
        s = s0 + tl.arange(0, BN)
        at = ((b * S + s) * HK + kvh) * D
        kt = tl.load(k + at[None, :] + d[:, None], mask=(s < n)[None, :], other=0.0)
        x = tl.where((s < n)[None, :], tl.dot(qv, kt) * scale, float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - m1[:, None])
        f = tl.exp(m - m1)
        vt = tl.load(v + at[:, None] + d[None, :], mask=(s < n)[:, None], other=0.0)
        acc = acc * f[:, None] + tl.dot(p.to(vt.dtype), vt)
        l = l * f + tl.sum(p, 1)
        m = m1
    tl.store(o + (b * H + head[:, None]) * D + d[None, :], acc / l[:, None], mask=ok_h[:, None])


def select(batch_size):
    return ("packed", packed_heads) if batch_size > 32 else ("single", single_head)


def run(q, k, v, lens):
    B, H, D = q.shape
    S, HK = k.shape[1:3]
    out = torch.empty((B, H, D), dtype=torch.float32, device=q.device)
    kind, kernel = select(B)
    grid = {"packed": (B, HK), "single": (B, H)}[kind]
    kernel[grid](q, k, v, lens, out, S, D**-0.5, H=H, HK=HK, D=D, BN=32)
    return out
