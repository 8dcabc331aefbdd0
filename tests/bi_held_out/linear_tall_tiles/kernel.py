"""fp16 linear layer; taller tiles when there are more tokens, the inner step never moves."""
from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Tiles(NamedTuple):
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    GROUP_M: int


@triton.jit
def linear_kernel(X, W, BIAS, Y, M, N, K, sx, sw, sy, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                  BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    grid_m = tl.cdiv(M, BLOCK_M)
    grid_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * grid_n
    group = pid // in_group
    height = tl.minimum(grid_m - group * GROUP_M, GROUP_M)
    pm = group * GROUP_M + (pid % in_group) % height
    pn = (pid % in_group) // height
    rm = pm * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pn * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        inner = k0 + rk < K
        x = tl.load(X + rm[:, None] * sx + (k0 + rk)[None, :], mask=(rm < M)[:, None] & inner[None, :], other=0.0)
        w = tl.load(W + rn[None, :] * sw + (k0 + rk)[:, None], mask=(rn < N)[None, :] & inner[:, None], other=0.0)
        acc = tl.dot(x, w, acc)
    acc += tl.load(BIAS + rn, mask=rn < N, other=0.0)[None, :].to(tl.float32)
    tl.store(Y + rm[:, None] * sy + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


def tiles_for(num_tokens: int) -> Tiles:
    if num_tokens <= 16:
        return Tiles(16, 64, 64, 1)
    return Tiles(32, 64, 64, 8 if num_tokens > 128 else 4)


def run(x, weight, bias):
    num_tokens, K = x.shape
    N = weight.shape[0]
    y = torch.empty((num_tokens, N), dtype=torch.float32, device=x.device)
    t = tiles_for(num_tokens)
    grid = (triton.cdiv(num_tokens, t.BLOCK_M) * triton.cdiv(N, t.BLOCK_N),)
    linear_kernel[grid](x, weight, bias, y, num_tokens, N, K, x.stride(0), weight.stride(0), y.stride(0),
                        **t._asdict(), num_warps=4, num_stages=3)
    return y
