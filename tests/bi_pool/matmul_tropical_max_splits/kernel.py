"""Max-plus product: y[b, n] = max_k (x[b, k] + w[n, k])."""

import torch
import triton
import triton.language as tl


@triton.jit
def maxplus(x, w, y, N, K, SPLITS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    s = tl.program_id(2)
    best = tl.full((BN,), float("-inf"), dtype=tl.float32)
    span = K // SPLITS
    for k0 in range(s * span, (s + 1) * span, BK):
        k = k0 + tl.arange(0, BK)
        v = tl.load(w + n[:, None] * K + k[None, :]) + tl.load(x + row * K + k)[None, :]
        best = tl.maximum(best, tl.max(v, axis=1))
    tl.store(y + (s * tl.num_programs(0) + row) * N + n, best)


def run(x, w):
    B, K = x.shape
    N = w.shape[0]
    splits = max(1, min(8, 128 // B))
    splits = 1 << (splits.bit_length() - 1)
    parts = torch.empty((splits, B, N), dtype=torch.float32, device=x.device)
    maxplus[(B, N // 32, splits)](x, w, parts, N, K, SPLITS=splits, BN=32, BK=64)
    return parts.amax(dim=0)
