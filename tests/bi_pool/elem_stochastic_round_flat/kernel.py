"""Stochastic rounding of float32 states to bfloat16 values (kept in float32 storage)."""

import torch
import triton
import triton.language as tl


@triton.jit
def stochastic_round(x_ptr, y_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    bits = x.to(tl.int32, bitcast=True)
    noise = tl.randint(seed, i).to(tl.int32, bitcast=True) & 0xFFFF
    rounded = ((bits + noise) >> 16) << 16
    tl.store(y_ptr + i, rounded.to(tl.float32, bitcast=True), mask=i < n)


def run(state):
    y = torch.empty_like(state)
    n = state.numel()
    stochastic_round[(triton.cdiv(n, 2048),)](state, y, n, 20240229, BLOCK=2048)
    return y
