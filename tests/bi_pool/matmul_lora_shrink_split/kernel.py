"""Multi-LoRA shrink: y[b] = A[adapter[b]] @ x[b], rank 16."""

import torch
import triton
import triton.language as tl


@triton.jit
def shrink(x_ptr, a_ptr, idx_ptr, part_ptr, K, RANK: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr):
    row = tl.program_id(0)
    sk = tl.program_id(1)
    adapter = tl.load(idx_ptr + row)
    r = tl.arange(0, RANK)
    acc = tl.zeros((RANK,), dtype=tl.float32)
    per = K // SPLIT_K
    for k in range(sk * per, (sk + 1) * per, BLOCK_K):
        offs = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row * K + offs).to(tl.float32)
        a = tl.load(a_ptr + adapter * RANK * K + r[:, None] * K + offs[None, :]).to(tl.float32)
        acc += tl.sum(a * x[None, :], axis=1)
    tl.store(part_ptr + (row * SPLIT_K + sk) * RANK + r, acc)


@triton.jit
def gather_splits(part_ptr, y_ptr, RANK: tl.constexpr, SPLIT_K: tl.constexpr):
    row = tl.program_id(0)
    r = tl.arange(0, RANK)
    acc = tl.zeros((RANK,), dtype=tl.float32)
    for sk in range(SPLIT_K):
        acc += tl.load(part_ptr + (row * SPLIT_K + sk) * RANK + r)
    tl.store(y_ptr + row * RANK + r, acc)


def run(x, lora_a, adapter_ids):
    B, K = x.shape
    rank = lora_a.shape[1]
    SPLIT_K = 16 if B < 64 else 4
    part = torch.empty((B, SPLIT_K, rank), dtype=torch.float32, device=x.device)
    shrink[(B, SPLIT_K)](x, lora_a, adapter_ids, part, K, RANK=rank, BLOCK_K=128, SPLIT_K=SPLIT_K, num_warps=4)
    y = torch.empty((B, rank), dtype=torch.float32, device=x.device)
    gather_splits[(B,)](part, y, RANK=rank, SPLIT_K=SPLIT_K, num_warps=1)
    return y
