"""int8 GEMM with exact integer split-K and one dequantisation at the end."""

import torch
import triton
import triton.language as tl


@triton.jit
def int8_splitk(x, w, acc_ptr, M, N, K, SPLIT_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    z = tl.program_id(2)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k0 in range(z * BK, K, BK * SPLIT_K):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0)
        wv = tl.load(w + k[:, None] * N + n[None, :])
        acc += tl.dot(xv, wv, out_dtype=tl.int32)
    tl.atomic_add(acc_ptr + m[:, None] * N + n[None, :], acc, mask=m[:, None] < M)


@triton.jit
def scale_kernel(acc_ptr, s_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(acc_ptr + row * N + c, mask=c < N).to(tl.float32)
    tl.store(y_ptr + row * N + c, v * tl.load(s_ptr + c, mask=c < N), mask=c < N)


def run(xq, wq, scale):
    M, K = xq.shape
    N = wq.shape[1]
    split_k = 8 if M <= 16 else 4 if M <= 64 else 1
    acc = torch.zeros((M, N), dtype=torch.int32, device=xq.device)
    int8_splitk[(triton.cdiv(M, 16), N // 64, split_k)](xq, wq, acc, M, N, K, SPLIT_K=split_k, BM=16, BN=64, BK=64)
    y = torch.empty((M, N), dtype=torch.float32, device=xq.device)
    scale_kernel[(M,)](acc, scale, y, N, BLOCK=triton.next_power_of_2(N))
    return y
