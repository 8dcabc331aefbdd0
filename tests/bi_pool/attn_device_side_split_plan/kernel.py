"""MQA decode. A tiny kernel plans num_kv_splits for each sequence on the device, so that no length comes to the host."""

import torch
import triton
import triton.language as tl

MAX_KV_SPLITS = 8


@triton.jit
def plan_kernel(lens_ptr, splits_ptr, MAX_SPLITS: tl.constexpr, MIN_CHUNK: tl.constexpr):
    seq = tl.program_id(0)
    num_seq = tl.num_programs(0)
    n = tl.load(lens_ptr + seq)
    by_len = tl.cdiv(n, MIN_CHUNK)
    by_load = tl.maximum(1, 128 // num_seq)
    tl.store(splits_ptr + seq, tl.minimum(MAX_SPLITS, tl.minimum(by_len, by_load)))


@triton.jit
def attend_kernel(q_ptr, k_ptr, v_ptr, table_ptr, lens_ptr, splits_ptr, o_ptr, lse_ptr, pages_per_seq, scale,
                  H: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, MAX_SPLITS: tl.constexpr, BN: tl.constexpr):
    seq = tl.program_id(0)
    split = tl.program_id(1)
    splits = tl.load(splits_ptr + seq)
    if split >= splits:
        return
    n = tl.load(lens_ptr + seq)
    chunk = tl.cdiv(n, splits)
    end = tl.minimum((split + 1) * chunk, n)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (seq * H + h[:, None]) * D + d[None, :], mask=h[:, None] < H, other=0.0)
    m_i = tl.full((16,), float("-inf"), tl.float32)
    l_i = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for start in range(split * chunk, end, BN):
        t = start + tl.arange(0, BN)
        phys = tl.load(table_ptr + seq * pages_per_seq + t // PAGE, mask=t < end, other=0) * PAGE + t % PAGE
        k = tl.load(k_ptr + phys[None, :] * D + d[:, None], mask=(t < end)[None, :], other=0.0)
        v = tl.load(v_ptr + phys[:, None] * D + d[None, :], mask=(t < end)[:, None], other=0.0)
        qk = tl.where((t < end)[None, :], tl.dot(q, k) * scale, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_new[:, None])
        corr = tl.exp(m_i - m_new)
        l_i = l_i * corr + tl.sum(p, 1)
        acc = acc * corr[:, None] + tl.dot(p.to(tl.float16), v)
        m_i = m_new
    out = (seq * MAX_SPLITS + split) * H + h
    tl.store(o_ptr + out[:, None] * D + d[None, :], acc / l_i[:, None], mask=h[:, None] < H)
    tl.store(lse_ptr + out, m_i + tl.log(l_i), mask=h < H)


@triton.jit
def merge_kernel(o_ptr, lse_ptr, splits_ptr, out_ptr, H: tl.constexpr, D: tl.constexpr, MAX_SPLITS: tl.constexpr):
    seq = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    splits = tl.load(splits_ptr + seq)
    m = float("-inf")
    total = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s in range(splits):
        at = (seq * MAX_SPLITS + s) * H + h
        lse = tl.load(lse_ptr + at)
        m_new = tl.maximum(m, lse)
        acc = acc * tl.exp(m - m_new) + tl.load(o_ptr + at * D + d) * tl.exp(lse - m_new)
        total = total * tl.exp(m - m_new) + tl.exp(lse - m_new)
        m = m_new
    tl.store(out_ptr + (seq * H + h) * D + d, acc / total)


def run(q, k_pool, v_pool, table, lens):
    num_seqs, H, D = q.shape
    dev = q.device
    splits = torch.empty(num_seqs, dtype=torch.int32, device=dev)
    plan_kernel[(num_seqs,)](lens, splits, MAX_SPLITS=MAX_KV_SPLITS, MIN_CHUNK=64)
    o = torch.empty((num_seqs, MAX_KV_SPLITS, H, D), dtype=torch.float32, device=dev)
    lse = torch.empty((num_seqs, MAX_KV_SPLITS, H), dtype=torch.float32, device=dev)
    attend_kernel[(num_seqs, MAX_KV_SPLITS)](q, k_pool, v_pool, table, lens, splits, o, lse, table.shape[1], D**-0.5,
                                             H=H, D=D, PAGE=k_pool.shape[1], MAX_SPLITS=MAX_KV_SPLITS, BN=32)
    out = torch.empty((num_seqs, H, D), dtype=torch.float32, device=dev)
    merge_kernel[(num_seqs, H)](o, lse, splits, out, H=H, D=D, MAX_SPLITS=MAX_KV_SPLITS)
    return out
