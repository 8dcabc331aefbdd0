import torch
import triton
import triton.language as tl

PAGES_PER_SPLIT = 8


@triton.jit
def mla_fwd(q_c, q_r, cache, tab, lens, out, lse, scale, max_pages, max_splits,
            H: tl.constexpr, C: tl.constexpr, R: tl.constexpr, PAGE: tl.constexpr, PPS: tl.constexpr):
    b = tl.program_id(0)
    sp = tl.program_id(1)
    n = tl.load(lens + b)
    lo = sp * PPS * PAGE
    if lo < n:
        W: tl.constexpr = C + R
        h = tl.arange(0, H)
        c = tl.arange(0, C)
        r = tl.arange(0, R)
        t = tl.arange(0, PAGE)
        qc = tl.load(q_c + (b * H + h[:, None]) * C + c[None, :])
        qr = tl.load(q_r + (b * H + h[:, None]) * R + r[None, :])
        m = tl.full((H,), float("-inf"), tl.float32)
        l = tl.zeros((H,), tl.float32)
        acc = tl.zeros((H, C), tl.float32)
        for pi in range(sp * PPS, tl.minimum((sp + 1) * PPS, tl.cdiv(n, PAGE))):
            page = tl.load(tab + b * max_pages + pi)
            rows = (page * PAGE + t) * W
            ok = pi * PAGE + t < n
            kc = tl.load(cache + rows[:, None] + c[None, :], mask=ok[:, None], other=0.0)
            kr = tl.load(cache + rows[:, None] + C + r[None, :], mask=ok[:, None], other=0.0)
            x = (tl.dot(qc, tl.trans(kc)) + tl.dot(qr, tl.trans(kr))) * scale
            x = tl.where(ok[None, :], x, float("-inf"))
            m1 = tl.maximum(m, tl.max(x, 1))
            p = tl.exp(x - m1[:, None])
            f = tl.exp(m - m1)
            acc = acc * f[:, None] + tl.dot(p.to(kc.dtype), kc)
            l = l * f + tl.sum(p, 1)
            m = m1
        at = (b * max_splits + sp) * H + h
        tl.store(out + at[:, None] * C + c[None, :], acc / l[:, None])
        tl.store(lse + at, m + tl.log(l))


@triton.jit
def mla_merge(part, lse, lens, y, max_splits, H: tl.constexpr, C: tl.constexpr, TOKENS: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    c = tl.arange(0, C)
    splits = tl.cdiv(tl.load(lens + b), TOKENS)
    m = float("-inf")
    den = 0.0
    acc = tl.zeros((C,), tl.float32)
    for sp in range(splits):
        at = (b * max_splits + sp) * H + h
        e = tl.load(lse + at)
        m1 = tl.maximum(m, e)
        f = tl.exp(m - m1)
        w = tl.exp(e - m1)
        acc = acc * f + w * tl.load(part + at * C + c)
        den = den * f + w
        m = m1
    tl.store(y + (b * H + h) * C + c, acc / den)


def run(q_latent, q_rope, cache, block_table, seq_lens):
    bsz, H, C = q_latent.shape
    R = q_rope.shape[2]
    page = cache.shape[1]
    max_splits = triton.cdiv(block_table.shape[1], PAGES_PER_SPLIT)
    part = torch.empty((bsz, max_splits, H, C), dtype=torch.float32, device=cache.device)
    lse = torch.empty((bsz, max_splits, H), dtype=torch.float32, device=cache.device)
    mla_fwd[(bsz, max_splits)](q_latent, q_rope, cache, block_table, seq_lens, part, lse, (C + R) ** -0.5,
                               block_table.shape[1], max_splits, H=H, C=C, R=R, PAGE=page, PPS=PAGES_PER_SPLIT)
    y = torch.empty((bsz, H, C), dtype=torch.float32, device=cache.device)
    mla_merge[(bsz, H)](part, lse, seq_lens, y, max_splits, H=H, C=C, TOKENS=PAGES_PER_SPLIT * page)
    return y
