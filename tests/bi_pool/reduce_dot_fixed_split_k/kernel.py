from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class DotConfig:
    split_k: int = 8
    block_k: int = 512
    num_warps: int = 4


@triton.jit
def _dot_partial(a_ptr, b_ptr, ws_ptr, K, SPLIT_K: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    acc = tl.zeros([BLOCK_K], tl.float32)
    for k in range(part * BLOCK_K, K, SPLIT_K * BLOCK_K):
        o = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + row * K + o, mask=o < K, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + row * K + o, mask=o < K, other=0.0).to(tl.float32)
        acc += a * b
    tl.store(ws_ptr + row * SPLIT_K + part, tl.sum(acc, axis=0))


@triton.jit
def _dot_reduce(ws_ptr, out_ptr, SPLIT_K: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out_ptr + row, tl.sum(tl.load(ws_ptr + row * SPLIT_K + tl.arange(0, SPLIT_K)), axis=0))


def row_dot(a, b, config: DotConfig = DotConfig()):
    batch, k = a.shape
    ws = torch.empty((batch, config.split_k), device=a.device, dtype=torch.float32)
    out = torch.empty(batch, device=a.device, dtype=torch.float32)
    _dot_partial[(batch, config.split_k)](
        a, b, ws, k, SPLIT_K=config.split_k, BLOCK_K=config.block_k, num_warps=config.num_warps
    )
    _dot_reduce[(batch,)](ws, out, SPLIT_K=config.split_k)
    return out


def run(a, b):
    return row_dot(a, b)
