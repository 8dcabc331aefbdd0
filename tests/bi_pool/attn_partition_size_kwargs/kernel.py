import bisect

import torch
import triton
import triton.language as tl

THRESHOLDS = [12, 48, 100]
OPTIONS = [
    {"PART": 64, "num_warps": 4},
    {"PART": 128, "num_warps": 4},
    {"PART": 256, "num_warps": 4},
    {"PART": 512, "num_warps": 4},
]


@triton.jit
def part_attn(q, kc, vc, tab, lens, o, stat, mp, np_max, sc,
              H: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, PART: tl.constexpr, BN: tl.constexpr):
    b, h, p = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n = tl.load(lens + b)
    if p * PART < n:
        d = tl.arange(0, D)
        qv = tl.load(q + (b * H + h) * D + d).to(tl.float32) * sc
        m = float("-inf")
        z = 0.0
        acc = tl.zeros((D,), tl.float32)
        for s0 in range(p * PART, tl.minimum(p * PART + PART, n), BN):
            s = s0 + tl.arange(0, BN)
            live = s < n
            loc = tl.load(tab + b * mp + s // PAGE, mask=live, other=0) * PAGE + s % PAGE
            k = tl.load(kc + loc[:, None] * D + d[None, :], mask=live[:, None], other=0.0).to(tl.float32)
            v = tl.load(vc + loc[:, None] * D + d[None, :], mask=live[:, None], other=0.0).to(tl.float32)
            x = tl.where(live, tl.sum(k * qv[None, :], 1), float("-inf"))
            mn = tl.maximum(m, tl.max(x, 0))
            e = tl.exp(x - mn)
            r = tl.exp(m - mn)
            acc = acc * r + tl.sum(e[:, None] * v, 0)
            z = z * r + tl.sum(e, 0)
            m = mn
        at = (b * H + h) * np_max + p
        tl.store(o + at * D + d, acc / z)
        tl.store(stat + at, m + tl.log(z))


@triton.jit
def part_reduce(o, stat, lens, y, np_max, H: tl.constexpr, D: tl.constexpr, PART: tl.constexpr):
    b, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    base = (b * H + h) * np_max
    parts = tl.cdiv(tl.load(lens + b), PART)
    m = tl.load(stat + base)
    acc = tl.load(o + base * D + d)
    z = 1.0
    for p in range(1, parts):
        lse = tl.load(stat + base + p)
        mn = tl.maximum(m, lse)
        acc = acc * tl.exp(m - mn) + tl.exp(lse - mn) * tl.load(o + (base + p) * D + d)
        z = z * tl.exp(m - mn) + tl.exp(lse - mn)
        m = mn
    tl.store(y + (b * H + h) * D + d, acc / z)


def run(q, k_pool, v_pool, table, lens):
    num_seqs, H, D = q.shape
    page = k_pool.shape[1]
    opts = dict(OPTIONS[bisect.bisect_left(THRESHOLDS, num_seqs)])
    np_max = triton.cdiv(table.shape[1] * page, opts["PART"])
    o = torch.empty((num_seqs, H, np_max, D), dtype=torch.float32, device=q.device)
    stat = torch.empty((num_seqs, H, np_max), dtype=torch.float32, device=q.device)
    y = torch.empty((num_seqs, H, D), dtype=torch.float32, device=q.device)
    part_attn[(num_seqs, H, np_max)](q, k_pool, v_pool, table, lens, o, stat, table.shape[1], np_max, D**-0.5,
                                     H=H, D=D, PAGE=page, BN=32, **opts)
    part_reduce[(num_seqs, H)](o, stat, lens, y, np_max, H=H, D=D, PART=opts["PART"])
    return y
