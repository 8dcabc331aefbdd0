"""Paged attention for one query token a sequence: a single-pass kernel and a partitioned one."""
import torch
import triton
import triton.language as tl

PARTITION = 64


@triton.jit
def _walk(q, kp, vp, table_row, start, stop, kv_head, stride_page, stride_tok, stride_head,
          scale, D: tl.constexpr, PAGE: tl.constexpr):
    d = tl.arange(0, D)
    slot = tl.arange(0, PAGE)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros([D], dtype=tl.float32)
    for pos in range(start, stop, PAGE):
        page = tl.load(table_row + pos // PAGE).to(tl.int64)
        live = pos + slot < stop
        where = page * stride_page + slot[:, None] * stride_tok + kv_head * stride_head + d[None, :]
        k = tl.load(kp + where, mask=live[:, None], other=0.0).to(tl.float32)
        v = tl.load(vp + where, mask=live[:, None], other=0.0).to(tl.float32)
        s = tl.where(live, tl.sum(k * q[None, :], 1) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        fix = tl.exp(top - new_top)
        p = tl.exp(s - new_top)
        acc = acc * fix + tl.sum(p[:, None] * v, 0)
        total = total * fix + tl.sum(p, 0)
        top = new_top
    return acc, total, top


@triton.jit
def single_pass(Q, KP, VP, TABLE, LENS, OUT, width, stride_page, stride_tok, stride_head, scale,
                H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    seq = tl.program_id(0)
    head = tl.program_id(1)
    d = tl.arange(0, D)
    q = tl.load(Q + (seq * H + head) * D + d).to(tl.float32)
    n = tl.load(LENS + seq)
    acc, total, top = _walk(q, KP, VP, TABLE + seq * width, 0, n, head // GROUP, stride_page, stride_tok,
                            stride_head, scale, D, PAGE)
    tl.store(OUT + (seq * H + head) * D + d, acc / total)


@triton.jit
def partitioned(Q, KP, VP, TABLE, LENS, TMP, SUMS, TOPS, width, stride_page, stride_tok, stride_head, scale,
                H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
                PART: tl.constexpr, NPART: tl.constexpr):
    seq = tl.program_id(0)
    head = tl.program_id(1)
    part = tl.program_id(2)
    n = tl.load(LENS + seq)
    if part * PART >= n:
        return
    d = tl.arange(0, D)
    q = tl.load(Q + (seq * H + head) * D + d).to(tl.float32)
    acc, total, top = _walk(q, KP, VP, TABLE + seq * width, part * PART, tl.minimum(n, part * PART + PART),
                            head // GROUP, stride_page, stride_tok, stride_head, scale, D, PAGE)
    at = (seq * H + head) * NPART + part
    tl.store(TMP + at * D + d, acc / total)
    tl.store(SUMS + at, total)
    tl.store(TOPS + at, top)


@triton.jit
def fold(TMP, SUMS, TOPS, LENS, OUT, H: tl.constexpr, D: tl.constexpr, PART: tl.constexpr, NPART: tl.constexpr):
    seq = tl.program_id(0)
    head = tl.program_id(1)
    mine = tl.cdiv(tl.load(LENS + seq), PART)
    i = tl.arange(0, NPART)
    d = tl.arange(0, D)
    base = (seq * H + head) * NPART
    tops = tl.load(TOPS + base + i, mask=i < mine, other=-float("inf"))
    w = tl.exp(tops - tl.max(tops, 0)) * tl.load(SUMS + base + i, mask=i < mine, other=0.0)
    part = tl.load(TMP + (base + i[:, None]) * D + d[None, :], mask=(i < mine)[:, None], other=0.0)
    tl.store(OUT + (seq * H + head) * D + d, tl.sum(part * (w / tl.sum(w, 0))[:, None], 0))


def run(query, key_pool, value_pool, block_tables, seq_lens):
    num_seqs, H, D = query.shape
    _, page, hkv, _ = key_pool.shape
    width = block_tables.shape[1]
    out = torch.empty((num_seqs, H, D), device=query.device, dtype=torch.float32)
    strides = (key_pool.stride(0), key_pool.stride(1), key_pool.stride(2))
    max_parts = triton.cdiv(width * page, PARTITION)
    # enough (sequence, head) pairs already fill the device: partitions would only add traffic
    use_v1 = max_parts == 1 or num_seqs * H > 256
    args = (query, key_pool, value_pool, block_tables, seq_lens)
    if use_v1:
        single_pass[(num_seqs, H)](*args, out, width, *strides, D**-0.5, H, H // hkv, D, page)
        return out
    nparts = triton.next_power_of_2(max_parts)
    tmp = torch.empty((num_seqs, H, nparts, D), device=query.device, dtype=torch.float32)
    sums = torch.empty((num_seqs, H, nparts), device=query.device, dtype=torch.float32)
    tops = torch.empty_like(sums)
    partitioned[(num_seqs, H, max_parts)](*args, tmp, sums, tops, width, *strides, D**-0.5, H, H // hkv, D, page,
                                          PARTITION, nparts)
    fold[(num_seqs, H)](tmp, sums, tops, seq_lens, out, H, D, PARTITION, nparts)
    return out
