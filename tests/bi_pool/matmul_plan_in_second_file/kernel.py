import torch
import triton
import triton.language as tl
from matmul_tile_planner import pick_tiles


@triton.jit
def gemm_partials(x_ptr, w_ptr, p_ptr, T, N, K, steps,
                  BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    acc = tl.zeros([BLOCK_T, BLOCK_N], dtype=tl.float32)
    for step in range(steps):
        k = (part * steps + step) * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + t[:, None] * K + k[None, :], mask=(t < T)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(w_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(p_ptr + (part * T + t[:, None]) * N + n[None, :], acc, mask=(t < T)[:, None] & (n < N)[None, :])


@triton.jit
def combine(p_ptr, y_ptr, TN, parts, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for p in range(parts):
        acc += tl.load(p_ptr + p * TN + i, mask=i < TN, other=0.0)
    tl.store(y_ptr + i, acc, mask=i < TN)


def run(x, w):
    tokens, K = x.shape
    N = w.shape[1]
    tiles = pick_tiles(num_tokens=tokens, hidden=K)
    steps = triton.cdiv(triton.cdiv(K, tiles.block_k), tiles.k_parts)
    partial = torch.empty((tiles.k_parts, tokens, N), device=x.device, dtype=torch.float32)
    gemm_partials[(triton.cdiv(tokens, 16), triton.cdiv(N, 64), tiles.k_parts)](
        x, w, partial, tokens, N, K, steps, BLOCK_T=16, BLOCK_N=64, BLOCK_K=tiles.block_k)
    y = torch.empty((tokens, N), device=x.device, dtype=torch.float32)
    combine[(triton.cdiv(y.numel(), 512),)](partial, y, y.numel(), tiles.k_parts, BLOCK=512)
    return y
