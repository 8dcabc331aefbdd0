"""Decode of requests with one shared prefix (MQA, keys are values). Cascade splits the softmax at the prefix's end."""

import torch
import triton
import triton.language as tl


@triton.jit
def _span(q, base, lo, hi, m, l, acc, D: tl.constexpr, BN: tl.constexpr):
    d = tl.arange(0, D)
    for s0 in range(lo, hi, BN):
        s = s0 + tl.arange(0, BN)
        ok = s < hi
        kv = tl.load(base + s[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        x = tl.where(ok[None, :], tl.dot(q, tl.trans(kv)), float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - m1[:, None])
        c = tl.exp(m - m1)
        acc = acc * c[:, None] + tl.dot(p.to(kv.dtype), kv)
        l = l * c + tl.sum(p, 1)
        m = m1
    return m, l, acc


@triton.jit
def flat_kernel(q_ptr, prefix, suffix, lens, out, P, S, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (r * H + h[:, None]) * D + d[None, :], mask=(h < H)[:, None], other=0.0)
    q = (q * (D ** -0.5)).to(tl.float16)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    m, l, acc = _span(q, prefix, 0, P, m, l, acc, D, BN)
    m, l, acc = _span(q, suffix + r * S * D, 0, tl.load(lens + r), m, l, acc, D, BN)
    tl.store(out + (r * H + h[:, None]) * D + d[None, :], acc / l[:, None], mask=(h < H)[:, None])


@triton.jit
def cascade_kernel(q_ptr, prefix, suffix, lens, tmp_o, tmp_lse, P, S, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0)
    level = tl.program_id(1)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (r * H + h[:, None]) * D + d[None, :], mask=(h < H)[:, None], other=0.0)
    q = (q * (D ** -0.5)).to(tl.float16)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    if level == 0:
        m, l, acc = _span(q, prefix, 0, P, m, l, acc, D, BN)
    else:
        m, l, acc = _span(q, suffix + r * S * D, 0, tl.load(lens + r), m, l, acc, D, BN)
    at = (r * 2 + level) * H + h
    tl.store(tmp_o + at[:, None] * D + d[None, :], acc / l[:, None], mask=(h < H)[:, None])
    tl.store(tmp_lse + at, m + tl.log(l), mask=h < H)


@triton.jit
def merge_states(tmp_o, tmp_lse, out, H: tl.constexpr, D: tl.constexpr):
    r = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    a = tl.load(tmp_lse + (r * 2) * H + h)
    b = tl.load(tmp_lse + (r * 2 + 1) * H + h)
    m = tl.maximum(a, b)
    wa = tl.exp(a - m)
    wb = tl.exp(b - m)
    oa = tl.load(tmp_o + ((r * 2) * H + h) * D + d)
    ob = tl.load(tmp_o + ((r * 2 + 1) * H + h) * D + d)
    tl.store(out + (r * H + h) * D + d, (wa * oa + wb * ob) / (wa + wb))


def use_cascade(num_reqs, prefix_len):
    if prefix_len < 32:
        return False
    return num_reqs >= 16


def run(q, prefix, suffix, suffix_lens):
    num_reqs, H, D = q.shape
    P, S = prefix.shape[0], suffix.shape[1]
    out = torch.empty((num_reqs, H, D), dtype=torch.float32, device=q.device)
    if use_cascade(num_reqs, P):
        o = torch.empty((num_reqs, 2, H, D), dtype=torch.float32, device=q.device)
        lse = torch.empty((num_reqs, 2, H), dtype=torch.float32, device=q.device)
        cascade_kernel[(num_reqs, 2)](q, prefix, suffix, suffix_lens, o, lse, P, S, H=H, D=D, BN=32)
        merge_states[(num_reqs, H)](o, lse, out, H=H, D=D)
    else:
        flat_kernel[(num_reqs,)](q, prefix, suffix, suffix_lens, out, P, S, H=H, D=D, BN=32)
    return out
