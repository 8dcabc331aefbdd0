"""Flash-decoding over a paged KV cache (GQA). Stage one: a split of one sequence; stage two: merge by log-sum-exp."""

import torch
import triton
import triton.language as tl

BLOCK_H = 16
BLOCK_KV = 32


@triton.jit
def decode_stage1(q_ptr, k_ptr, v_ptr, table_ptr, len_ptr, mid_o, mid_lse, scale, max_pages, splits,
                  H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
                  BLOCK_H: tl.constexpr, BLOCK_KV: tl.constexpr):
    b = tl.program_id(0)
    hk = tl.program_id(1)
    split = tl.program_id(2)
    GROUP: tl.constexpr = H // HK
    offs_h = tl.arange(0, BLOCK_H)
    heads = hk * GROUP + offs_h
    head_ok = offs_h < GROUP
    offs_d = tl.arange(0, D)
    seq = tl.load(len_ptr + b)
    per_split = tl.cdiv(tl.cdiv(seq, splits), BLOCK_KV) * BLOCK_KV
    lo = split * per_split
    hi = tl.minimum(lo + per_split, seq)
    q = tl.load(q_ptr + (b * H + heads[:, None]) * D + offs_d[None, :], mask=head_ok[:, None], other=0.0)
    m = tl.full((BLOCK_H,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_H,), tl.float32)
    acc = tl.zeros((BLOCK_H, D), tl.float32)
    for start in range(lo, hi, BLOCK_KV):
        pos = start + tl.arange(0, BLOCK_KV)
        live = pos < hi
        page = tl.load(table_ptr + b * max_pages + pos // PAGE, mask=live, other=0)
        base = ((page * PAGE + pos % PAGE) * HK + hk) * D
        k = tl.load(k_ptr + base[None, :] + offs_d[:, None], mask=live[None, :], other=0.0)
        s = tl.where(live[None, :], tl.dot(q, k) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        v = tl.load(v_ptr + base[:, None] + offs_d[None, :], mask=live[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        l = l * alpha + tl.sum(p, 1)
        m = m_new
    slot = (b * H + heads) * splits + split
    safe_l = tl.where(l > 0.0, l, 1.0)
    tl.store(mid_o + slot[:, None] * D + offs_d[None, :], acc / safe_l[:, None], mask=head_ok[:, None])
    tl.store(mid_lse + slot, m + tl.log(safe_l), mask=head_ok)


@triton.jit
def decode_stage2(mid_o, mid_lse, out_ptr, splits, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    m = float("-inf")
    for s in range(splits):
        m = tl.maximum(m, tl.load(mid_lse + row * splits + s))
    norm = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s in range(splits):
        lse = tl.load(mid_lse + row * splits + s)
        w = tl.exp(lse - m)
        acc += w * tl.load(mid_o + (row * splits + s) * D + d)
        norm += w
    tl.store(out_ptr + row * D + d, acc / norm)


def run(q, k_pool, v_pool, page_table, seq_lens):
    bsz, H, D = q.shape
    page, HK = k_pool.shape[1], k_pool.shape[2]
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    num_kv_splits = max(1, min(16, sms // (bsz * HK)))
    mid_o = torch.empty((bsz, H, num_kv_splits, D), dtype=torch.float32, device=q.device)
    mid_lse = torch.empty((bsz, H, num_kv_splits), dtype=torch.float32, device=q.device)
    decode_stage1[(bsz, HK, num_kv_splits)](
        q, k_pool, v_pool, page_table, seq_lens, mid_o, mid_lse, D**-0.5, page_table.shape[1], num_kv_splits,
        H=H, HK=HK, D=D, PAGE=page, BLOCK_H=BLOCK_H, BLOCK_KV=BLOCK_KV)
    out = torch.empty((bsz, H, D), dtype=torch.float32, device=q.device)
    decode_stage2[(bsz * H,)](mid_o, mid_lse, out, num_kv_splits, D=D)
    return out
