"""Ragged decode with a host plan. KV_CHUNK never changes, so a row is always cut at the same places."""

import itertools

import torch
import triton
import triton.language as tl

KV_CHUNK = 128


def plan(kv_indptr):
    ptr = kv_indptr.tolist()
    chunks = [-(-(hi - lo) // KV_CHUNK) for lo, hi in itertools.pairwise(ptr)]
    row_of = [row for row, c in enumerate(chunks) for _ in range(c)]
    begin = [ptr[row] + KV_CHUNK * i for row, c in enumerate(chunks) for i in range(c)]
    offsets = [0, *itertools.accumulate(chunks)]
    as_tensor = lambda xs: torch.tensor(xs, dtype=torch.int32).to(kv_indptr.device)
    return as_tensor(row_of), as_tensor(begin), as_tensor(offsets), len(row_of)


@triton.jit
def chunk_kernel(q, k, v, indptr, row_of, begin, part, scale,
                 H: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0)
    h = tl.program_id(1)
    row = tl.load(row_of + i)
    lo = tl.load(begin + i)
    hi = tl.minimum(lo + CHUNK, tl.load(indptr + row + 1))
    d = tl.arange(0, D)
    qv = tl.load(q + (row * H + h) * D + d).to(tl.float32) * scale
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s0 in range(lo, hi, BN):
        s = s0 + tl.arange(0, BN)
        ok = s < hi
        kt = tl.load(k + s[:, None] * D + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        x = tl.where(ok, tl.sum(kt * qv[None, :], 1), float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 0))
        p = tl.exp(x - m1)
        f = tl.exp(m - m1)
        vt = tl.load(v + s[:, None] * D + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        acc = acc * f + tl.sum(p[:, None] * vt, 0)
        l = l * f + tl.sum(p, 0)
        m = m1
    at = part + (i * H + h) * (D + 2)
    tl.store(at + d, acc)
    tl.store(at + D, m)
    tl.store(at + D + 1, l)


@triton.jit
def join_kernel(part, offsets, out, H: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for i in range(tl.load(offsets + row), tl.load(offsets + row + 1)):
        at = part + (i * H + h) * (D + 2)
        mi = tl.load(at + D)
        m1 = tl.maximum(m, mi)
        acc = acc * tl.exp(m - m1) + tl.load(at + d) * tl.exp(mi - m1)
        l = l * tl.exp(m - m1) + tl.load(at + D + 1) * tl.exp(mi - m1)
        m = m1
    tl.store(out + (row * H + h) * D + d, acc / l)


def run(q, k, v, kv_indptr):
    num_rows, H, D = q.shape
    row_of, begin, offsets, n = plan(kv_indptr)
    part = torch.empty((n, H, D + 2), dtype=torch.float32, device=q.device)
    chunk_kernel[(n, H)](q, k, v, kv_indptr, row_of, begin, part, D**-0.5, H=H, D=D, CHUNK=KV_CHUNK, BN=32)
    out = torch.empty((num_rows, H, D), dtype=torch.float32, device=q.device)
    join_kernel[(num_rows, H)](part, offsets, out, H=H, D=D)
    return out
