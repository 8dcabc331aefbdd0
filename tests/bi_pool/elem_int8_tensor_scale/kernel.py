"""Per-tensor dynamic int8 quantisation of activations."""

import torch
import triton
import triton.language as tl


@triton.jit
def _absmax(x_ptr, amax_ptr, numel, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < numel, other=0.0).to(tl.float32)
    tl.atomic_max(amax_ptr, tl.max(tl.abs(x), axis=0))


@triton.jit
def _quantise(x_ptr, q_ptr, s_ptr, amax_ptr, numel, n_cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.maximum(tl.load(amax_ptr) / 127.0, 1e-8)
    x = tl.load(x_ptr + i, mask=i < numel, other=0.0).to(tl.float32)
    q = tl.floor(x / scale + 0.5)
    q = tl.minimum(tl.maximum(q, -127.0), 127.0)
    tl.store(q_ptr + i, q.to(tl.int8), mask=i < numel)
    tl.store(s_ptr + i // n_cols, tl.full([BLOCK], 1.0, tl.float32) * scale, mask=(i < numel) & (i % n_cols == 0))


def run(x):
    tokens, n_cols = x.shape
    amax = torch.zeros(1, device=x.device, dtype=torch.float32)
    q = torch.empty((tokens, n_cols), device=x.device, dtype=torch.int8)
    scales = torch.empty((tokens, 1), device=x.device, dtype=torch.float32)
    numel = x.numel()
    grid = (triton.cdiv(numel, 1024),)
    _absmax[grid](x, amax, numel, BLOCK=1024)
    _quantise[grid](x, q, scales, amax, numel, n_cols, BLOCK=1024)
    return q, scales
