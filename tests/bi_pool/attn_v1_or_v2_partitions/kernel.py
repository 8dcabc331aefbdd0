"""Paged attention in two versions: v1 walks a sequence in one program, v2 cuts it into partitions of 128 tokens."""

import torch
import triton
import triton.language as tl

PARTITION = 128


@triton.jit
def _walk(q, k_ptr, v_ptr, table_row, lo, hi, kvh, scale,
          HK: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    d = tl.arange(0, D)
    slot = tl.arange(0, PAGE)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for start in range(lo, hi, PAGE):
        page = tl.load(table_row + start // PAGE)
        addr = ((page * PAGE + slot) * HK + kvh) * D
        ok = start + slot < hi
        k = tl.load(k_ptr + addr[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        s = tl.where(ok, tl.sum(k * q[None, :], 1) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        p = tl.exp(s - m_new)
        c = tl.exp(m - m_new)
        v = tl.load(v_ptr + addr[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        acc = acc * c + tl.sum(p[:, None] * v, 0)
        l = l * c + tl.sum(p, 0)
        m = m_new
    return acc, m, l


@triton.jit
def paged_v1(q_ptr, k_ptr, v_ptr, table, lens, out, pages, scale,
             H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    seq = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (seq * H + h) * D + d).to(tl.float32)
    acc, m, l = _walk(q, k_ptr, v_ptr, table + seq * pages, 0, tl.load(lens + seq), h // (H // HK), scale, HK, D, PAGE)
    tl.store(out + (seq * H + h) * D + d, acc / l)


@triton.jit
def paged_v2(q_ptr, k_ptr, v_ptr, table, lens, tmp, stat, pages, max_parts, scale,
             H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, PARTITION: tl.constexpr):
    seq = tl.program_id(0)
    h = tl.program_id(1)
    part = tl.program_id(2)
    n = tl.load(lens + seq)
    lo = part * PARTITION
    if lo >= n:
        return
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (seq * H + h) * D + d).to(tl.float32)
    acc, m, l = _walk(q, k_ptr, v_ptr, table + seq * pages, lo, tl.minimum(lo + PARTITION, n), h // (H // HK), scale,
                      HK, D, PAGE)
    w = (seq * H + h) * max_parts + part
    tl.store(tmp + w * D + d, acc)
    tl.store(stat + w * 2, m)
    tl.store(stat + w * 2 + 1, l)


@triton.jit
def paged_v2_reduce(tmp, stat, lens, out, max_parts, H: tl.constexpr, D: tl.constexpr, PARTITION: tl.constexpr):
    seq = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    parts = tl.cdiv(tl.load(lens + seq), PARTITION)
    base = (seq * H + h) * max_parts
    m = float("-inf")
    for p in range(parts):
        m = tl.maximum(m, tl.load(stat + (base + p) * 2))
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for p in range(parts):
        f = tl.exp(tl.load(stat + (base + p) * 2) - m)
        l += f * tl.load(stat + (base + p) * 2 + 1)
        acc += f * tl.load(tmp + (base + p) * D + d)
    tl.store(out + (seq * H + h) * D + d, acc / l)


def run(q, k_pool, v_pool, table, lens):
    num_seqs, H, D = q.shape
    PAGE, HK = k_pool.shape[1:3]
    out = torch.empty((num_seqs, H, D), dtype=torch.float32, device=q.device)
    consts = dict(H=H, HK=HK, D=D, PAGE=PAGE)
    pages = table.shape[1]
    max_parts = triton.cdiv(pages * PAGE, PARTITION)
    use_v1 = max_parts == 1 or num_seqs * H > 64
    if use_v1:
        paged_v1[(num_seqs, H)](q, k_pool, v_pool, table, lens, out, pages, D**-0.5, **consts)
        return out
    tmp = torch.empty((num_seqs, H, max_parts, D), dtype=torch.float32, device=q.device)
    stat = torch.empty((num_seqs, H, max_parts, 2), dtype=torch.float32, device=q.device)
    paged_v2[(num_seqs, H, max_parts)](q, k_pool, v_pool, table, lens, tmp, stat, pages, max_parts, D**-0.5,
                                       PARTITION=PARTITION, **consts)
    paged_v2_reduce[(num_seqs, H)](tmp, stat, lens, out, max_parts, H=H, D=D, PARTITION=PARTITION)
    return out
