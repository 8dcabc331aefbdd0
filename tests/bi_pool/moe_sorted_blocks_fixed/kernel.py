import torch
import triton
import triton.language as tl
from moe_align import align_block_size

SPLIT_K = 1


@triton.jit
def grouped_gemm(x, order, block_expert, gate, w, out, num_valid, K, N: tl.constexpr, TOPK: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr):
    blk = tl.program_id(0)
    e = tl.load(block_expert + blk)
    a = tl.load(order + blk * BLOCK_M + tl.arange(0, BLOCK_M))
    valid = a < num_valid
    n = tl.arange(0, N)
    acc = tl.zeros((BLOCK_M, N), tl.float32)
    for k0 in range(0, K, BLOCK_K * SPLIT_K):
        k = k0 + tl.arange(0, BLOCK_K)
        xv = tl.load(x + (a // TOPK)[:, None] * K + k[None, :], mask=valid[:, None], other=0.0)
        acc = tl.dot(xv, tl.load(w + (e * K + k[:, None]) * N + n[None, :]), acc)
    acc *= tl.load(gate + a, mask=valid, other=0.0)[:, None]
    tl.store(out + a[:, None] * N + n[None, :], acc, mask=valid[:, None])


@triton.jit
def sum_slots(out, y, N: tl.constexpr, TOPK: tl.constexpr):
    t = tl.program_id(0)
    n = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for j in tl.static_range(TOPK):
        acc += tl.load(out + (t * TOPK + j) * N + n)
    tl.store(y + t * N + n, acc)


def run(x, topk_ids, topk_weights, w):
    M, K = x.shape
    E, _, N = w.shape
    topk = topk_ids.shape[1]
    order, block_expert = align_block_size(topk_ids, E, block=16)
    out = torch.empty((M * topk, N), dtype=torch.float32, device=x.device)
    grouped_gemm[(block_expert.shape[0],)](x, order, block_expert, topk_weights, w, out, M * topk, K,
                                           N=N, TOPK=topk, BLOCK_M=16, BLOCK_K=64, SPLIT_K=SPLIT_K)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    sum_slots[(M,)](out, y, N=N, TOPK=topk)
    return y
