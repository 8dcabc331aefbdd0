"""W8A16 linear with a fixed split over K (the value was tuned once for this layer) and an ordered second stage."""
import itertools

import torch
import triton
import triton.language as tl

SPLIT_K = 4
_LAYERS = {(n, k): {"split_k": SPLIT_K, "BK": 64} for n, k in itertools.product((512, 1024), (1024, 2048))}


@triton.jit
def _partial(a_ptr, q_ptr, s_ptr, p_ptr, M, N: tl.constexpr, K: tl.constexpr, split_k: tl.constexpr,
             BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    z = tl.program_id(2)
    span: tl.constexpr = K // split_k
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, span, BK):
        k = z * span + k0 + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0)
        q = tl.load(q_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(a, q.to(tl.float16), acc)
    acc = acc * tl.load(s_ptr + n)[None, :]
    tl.store(p_ptr + (z * M + m)[:, None] * N + n[None, :], acc, mask=(m < M)[:, None])


@triton.jit
def _sum_parts(p_ptr, y_ptr, total, split_k: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.load(p_ptr + i, mask=i < total, other=0.0)
    for z in tl.static_range(1, split_k):
        acc += tl.load(p_ptr + z * total + i, mask=i < total, other=0.0)
    tl.store(y_ptr + i, acc.to(tl.float16), mask=i < total)


def run(x, qweight, scales):
    M, K = x.shape
    N = qweight.shape[1]
    layer = _LAYERS[(N, K)]
    split_k = layer["split_k"]
    parts = torch.empty((split_k, M, N), device=x.device, dtype=torch.float32)
    _partial[(triton.cdiv(M, 16), N // 64, split_k)](x, qweight, scales, parts, M, N, K, split_k, 16, 64, layer["BK"])
    y = torch.empty((M, N), device=x.device, dtype=torch.float16)
    block = 256 if M < 32 else 1024
    _sum_parts[(triton.cdiv(M * N, block),)](parts, y, M * N, split_k, block)
    return y
