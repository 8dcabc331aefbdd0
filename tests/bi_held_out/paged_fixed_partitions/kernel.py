"""Paged decode, partitions of 128 tokens; the grid covers the page table's width, short requests leave early."""
import torch
import triton
import triton.language as tl


@triton.jit
def partition_kernel(Q, KC, VC, PAGES, LENS, ACC, M, L, width, sm_scale, NUM_PARTITIONS, H: tl.constexpr,
                     HKV: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, PART: tl.constexpr):
    seq = tl.program_id(0)
    h = tl.program_id(1)
    part = tl.program_id(2)
    n = tl.load(LENS + seq)
    if part * PART >= n:
        return
    t = part * PART + tl.arange(0, PART)
    ok = t < n
    page = tl.load(PAGES + seq * width + t // PAGE, mask=ok, other=0)
    d = tl.arange(0, D)
    at = ((page * PAGE + t % PAGE)[:, None] * HKV + h // (H // HKV)) * D + d[None, :]
    q = tl.load(Q + (seq * H + h) * D + d).to(tl.float32)
    k = tl.load(KC + at, mask=ok[:, None], other=0.0).to(tl.float32)
    s = tl.where(ok, tl.sum(k * q[None, :], 1) * sm_scale, -float("inf"))
    m = tl.max(s, 0)
    p = tl.exp(s - m)
    v = tl.load(VC + at, mask=ok[:, None], other=0.0).to(tl.float32)
    o = (seq * H + h) * NUM_PARTITIONS + part
    tl.store(ACC + o * D + d, tl.sum(p[:, None] * v, 0))
    tl.store(M + o, m)
    tl.store(L + o, tl.sum(p, 0))


@triton.jit
def reduce_kernel(ACC, M, L, LENS, OUT, NUM_PARTITIONS, H: tl.constexpr, D: tl.constexpr, PART: tl.constexpr):
    seq = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    base = (seq * H + h) * NUM_PARTITIONS
    top = -float("inf")
    den = 0.0
    num = tl.zeros([D], tl.float32)
    # only the request's own partitions: the others were never written
    for i in range(tl.cdiv(tl.load(LENS + seq), PART)):
        m = tl.load(M + base + i)
        top2 = tl.maximum(top, m)
        r = tl.exp(top - top2)
        w = tl.exp(m - top2)
        num = num * r + w * tl.load(ACC + (base + i) * D + d)
        den = den * r + w * tl.load(L + base + i)
        top = top2
    tl.store(OUT + (seq * H + h) * D + d, num / den)


def run(q, key_cache, value_cache, block_tables, context_lens):
    num_seqs, H, D = q.shape
    page, hkv = key_cache.shape[1:3]
    width = block_tables.shape[1]
    PART = 128
    num_partitions = triton.cdiv(width * page, PART)
    acc = torch.empty((num_seqs, H, num_partitions, D), dtype=torch.float32, device=q.device)
    m = torch.empty((num_seqs, H, num_partitions), dtype=torch.float32, device=q.device)
    l = torch.empty_like(m)
    out = torch.empty((num_seqs, H, D), dtype=torch.float32, device=q.device)
    partition_kernel[(num_seqs, H, num_partitions)](q, key_cache, value_cache, block_tables, context_lens, acc, m, l,
                                                    width, D**-0.5, num_partitions, H=H, HKV=hkv, D=D, PAGE=page,
                                                    PART=PART)
    reduce_kernel[(num_seqs, H)](acc, m, l, context_lens, out, num_partitions, H=H, D=D, PART=PART)
    return out
