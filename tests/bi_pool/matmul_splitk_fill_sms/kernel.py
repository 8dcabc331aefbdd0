"""Half-precision GEMM for skinny activations: split-K partials in a workspace, then an ordered reduction."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 16, 64, 64


@triton.jit
def _partial_kernel(
    x_ptr, w_ptr, ws_ptr, M, N, K, k_per_split,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    pid = tl.program_id(0)
    split = tl.program_id(1)
    grid_n = tl.cdiv(N, BLOCK_N)
    offs_m = (pid // grid_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (pid % grid_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    k_begin = split * k_per_split
    k_end = tl.minimum(k_begin + k_per_split, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(k_begin, k_end, BLOCK_K):
        k_mask = k + offs_k < k_end
        x = tl.load(x_ptr + offs_m[:, None] * K + (k + offs_k)[None, :],
                    mask=(offs_m[:, None] < M) & k_mask[None, :], other=0.0)
        w = tl.load(w_ptr + (k + offs_k)[:, None] * N + offs_n[None, :],
                    mask=k_mask[:, None] & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc)
    out = ws_ptr + split * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@triton.jit
def _reduce_kernel(ws_ptr, out_ptr, numel, num_slices, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in range(num_slices):
        acc += tl.load(ws_ptr + s * numel + offs, mask=mask, other=0.0)
    tl.store(out_ptr + offs, acc, mask=mask)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    split_k = max(1, min(16, sms // tiles))
    k_per_split = triton.cdiv(triton.cdiv(K, split_k), BLOCK_K) * BLOCK_K
    split_k = triton.cdiv(K, k_per_split)
    ws = torch.empty((split_k, M, N), device=x.device, dtype=torch.float32)
    _partial_kernel[(tiles, split_k)](x, w, ws, M, N, K, k_per_split, BLOCK_M, BLOCK_N, BLOCK_K)
    out = torch.empty((M, N), device=x.device, dtype=torch.float32)
    _reduce_kernel[(triton.cdiv(M * N, 1024),)](ws, out, M * N, split_k, BLOCK=1024)
    return out
