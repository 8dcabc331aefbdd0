"""Fused MoE with int8 weights (groups of 128 along K). Tokens are sorted by expert and padded to row tiles."""

import torch
import triton
import triton.language as tl
from moe_token_sort import sort_by_expert

GROUP = 128
CONFIGS = {
    1: {"BLOCK_K": 128, "num_stages": 2},
    24: {"BLOCK_K": 64, "num_stages": 3},
    96: {"BLOCK_K": 32, "num_stages": 4},
}


@triton.jit
def grouped_w8(x, order, block_expert, w, scale, out, num_assign, K, TOPK: tl.constexpr, N: tl.constexpr,
               GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    blk = tl.program_id(0)
    e = tl.load(block_expert + blk)
    a = tl.load(order + blk * BLOCK_M + tl.arange(0, BLOCK_M))
    ok = (a < num_assign)[:, None]
    n = tl.arange(0, N)
    acc = tl.zeros((BLOCK_M, N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        xv = tl.load(x + (a // TOPK)[:, None] * K + k[None, :], mask=ok, other=0.0)
        wv = (tl.load(w + (e * K + k[:, None]) * N + n[None, :]).to(tl.float32) - 8.0).to(tl.float16)
        s = tl.load(scale + (e * (K // GROUP) + k0 // GROUP) * N + n)
        acc += tl.dot(xv, wv) * s[None, :]
    tl.store(out + a[:, None] * N + n[None, :], acc, mask=ok)


def run(x, topk_ids, topk_weights, w, scale):
    M, K = x.shape
    E, _, N = w.shape
    topk = topk_ids.shape[1]
    cfg = CONFIGS[min(CONFIGS.keys(), key=lambda m: abs(m - M))]
    order, block_expert = sort_by_expert(topk_ids, E, 16)
    out = torch.empty((M * topk, N), dtype=torch.float32, device=x.device)
    grouped_w8[(block_expert.numel(),)](x, order, block_expert, w, scale, out, M * topk, K,
                                        TOPK=topk, N=N, GROUP=GROUP, BLOCK_M=16, **cfg)
    out = out.view(M, topk, N) * topk_weights.unsqueeze(-1)
    return out[:, 0] + out[:, 1]
