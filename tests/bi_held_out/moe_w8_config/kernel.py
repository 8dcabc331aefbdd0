"""Grouped expert GEMM with int8 weights and a scale a group of 128 inputs; top-1 routing, tokens sorted by expert."""
from typing import Any

import torch
import triton
import triton.language as tl

GROUP = 128


@triton.jit
def moe_w8_kernel(A, B, S, C, SORTED, EXPERT_OF_TILE, num_rows, N, K, GROUP_K: tl.constexpr,
                  BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr):
    tile = tl.program_id(0)
    e = tl.load(EXPERT_OF_TILE + tile)
    ids = tl.load(SORTED + tile * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))
    live = ids < num_rows
    n = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_SIZE_K):
        k = k0 + tl.arange(0, BLOCK_SIZE_K)
        a = tl.load(A + ids[:, None] * K + k[None, :], mask=live[:, None], other=0.0)
        b = tl.load(B + e * K * N + k[:, None] * N + n[None, :])
        s = tl.load(S + (e * (K // GROUP_K) + k0 // GROUP_K) * N + n)
        part = tl.dot(a, b.to(a.dtype))
        acc += part * s[None, :]
    tl.store(C + ids[:, None] * N + n[None, :], acc, mask=live[:, None])


def default_config(M: int, E: int) -> dict[str, Any]:
    if M <= E:
        return {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 128}
    if M <= 8 * E:
        return {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64}
    return {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}


def align(expert, num_experts, block):
    """Token ids grouped by expert, each group filled up to a multiple of block with an out-of-range id."""
    count = torch.bincount(expert, minlength=num_experts)
    filled = (count + block - 1) // block * block
    starts = filled.cumsum(0) - filled
    order = torch.argsort(expert, stable=True)
    rank = torch.arange(expert.numel(), device=expert.device) - (count.cumsum(0) - count)[expert[order]]
    ids = torch.full((int(filled.sum()),), expert.numel(), dtype=torch.int32, device=expert.device)
    ids[starts[expert[order]] + rank] = order.to(torch.int32)
    tiles = torch.repeat_interleave(torch.arange(num_experts, device=expert.device), filled // block)
    return ids, tiles.to(torch.int32)


def run(hidden, expert_ids, codes, scales):
    M, K = hidden.shape
    w8 = (codes - 100).to(torch.int8)
    E, _, N = w8.shape
    cfg = default_config(M, E)
    ids, tiles = align(expert_ids.long(), E, cfg["BLOCK_SIZE_M"])
    out = torch.empty((M, N), dtype=torch.float32, device=hidden.device)
    grid = (tiles.numel(), N // cfg["BLOCK_SIZE_N"])
    moe_w8_kernel[grid](hidden, w8, scales, out, ids, tiles, M, N, K, GROUP_K=GROUP, **cfg, num_warps=4)
    return out
