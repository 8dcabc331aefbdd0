import logging

import torch
import triton
import triton.language as tl

logger = logging.getLogger(__name__)
USE_SPLIT_K = False


@triton.jit
def gemm(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT_K: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    z = tl.program_id(2)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(z * BK, K, BK * SPLIT_K):
        k = k0 + tl.arange(0, BK)
        acc = tl.dot(tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0),
                     tl.load(w + k[:, None] * N + n[None, :]), acc)
    where = y + m[:, None] * N + n[None, :]
    if SPLIT_K == 1:
        tl.store(where, acc, mask=m[:, None] < M)
    else:
        tl.atomic_add(where, acc, mask=m[:, None] < M)


def estimate_split_k(batch, n, sms):
    return max(1, sms // (triton.cdiv(batch, 16) * triton.cdiv(n, 64)))


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    estimated = estimate_split_k(M, N, sms)
    logger.debug("rows=%d would take split_k=%d", M, estimated)
    split_k = 1
    if USE_SPLIT_K:
        split_k = estimated
    y = torch.zeros((M, N), dtype=torch.float32, device=x.device)
    gemm[(triton.cdiv(M, 16), triton.cdiv(N, 64), split_k)](x, w, y, M, N, K, BM=16, BN=64, BK=64, SPLIT_K=split_k)
    return y
