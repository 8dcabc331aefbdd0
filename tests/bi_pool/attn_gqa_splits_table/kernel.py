import torch
import triton
import triton.language as tl

# bucket of concurrent sequences -> how many programs share one KV head
SPLITS_FOR_BUCKET = {1: 16, 2: 16, 4: 8, 8: 8, 16: 4, 32: 4, 64: 2, 128: 1, 256: 1}


@triton.jit
def _attend(q, k_cache, v_cache, lens, ws, S, sm_scale,
            H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, NSPLIT: tl.constexpr, BN: tl.constexpr):
    bh = tl.program_id(0)
    part = tl.program_id(1)
    b = bh // H
    h = bh % H
    kvh = h // (H // HK)
    n = tl.load(lens + b)
    width = tl.cdiv(n, NSPLIT)
    d = tl.arange(0, D)
    qv = tl.load(q + bh * D + d).to(tl.float32) * sm_scale
    top = float("-inf")
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s0 in range(part * width, tl.minimum(part * width + width, n), BN):
        s = s0 + tl.arange(0, BN)
        ok = (s < n) & (s < part * width + width)
        addr = ((b * S + s) * HK + kvh) * D
        kt = tl.load(k_cache + addr[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        logit = tl.where(ok, tl.sum(kt * qv[None, :], axis=1), float("-inf"))
        new_top = tl.maximum(top, tl.max(logit, axis=0))
        w = tl.exp(logit - new_top)
        fix = tl.exp(top - new_top)
        vt = tl.load(v_cache + addr[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        acc = acc * fix + tl.sum(w[:, None] * vt, axis=0)
        den = den * fix + tl.sum(w, axis=0)
        top = new_top
    at = ws + (bh * NSPLIT + part) * (D + 2)
    tl.store(at + d, acc)
    tl.store(at + D, top)
    tl.store(at + D + 1, den)


@triton.jit
def _merge(ws, out, D: tl.constexpr, NSPLIT: tl.constexpr):
    bh = tl.program_id(0)
    d = tl.arange(0, D)
    top = float("-inf")
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for part in range(NSPLIT):
        at = ws + (bh * NSPLIT + part) * (D + 2)
        t = tl.load(at + D)
        z = tl.load(at + D + 1)
        if z > 0.0:
            new_top = tl.maximum(top, t)
            acc = acc * tl.exp(top - new_top) + tl.load(at + d) * tl.exp(t - new_top)
            den = den * tl.exp(top - new_top) + z * tl.exp(t - new_top)
            top = new_top
    tl.store(out + bh * D + d, acc / den)


def run(q, k_cache, v_cache, lens):
    B, H, D = q.shape
    S, HK = k_cache.shape[1:3]
    n_split = SPLITS_FOR_BUCKET[min(256, triton.next_power_of_2(B))]
    ws = torch.empty(B * H * n_split * (D + 2), dtype=torch.float32, device=q.device)
    out = torch.empty(B, H, D, dtype=torch.float32, device=q.device)
    _attend[(B * H, n_split)](q, k_cache, v_cache, lens, ws, S, 1.0 / D**0.5, H=H, HK=HK, D=D, NSPLIT=n_split, BN=32)
    _merge[(B * H,)](ws, out, D=D, NSPLIT=n_split)
    return out
