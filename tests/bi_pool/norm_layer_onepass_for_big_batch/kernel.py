"""LayerNorm forward with two statistics kernels; the wrapper takes whichever was faster in our sweep."""

import torch
import triton
import triton.language as tl


@triton.jit
def _ln_two_pass(x_ptr, w_ptr, b_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    diff = tl.where(mask, x - mean, 0.0)
    var = tl.sum(diff * diff, axis=0) / N
    y = diff * tl.rsqrt(var + eps)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * N + cols, y * w + b, mask=mask)


@triton.jit
def _ln_one_pass(x_ptr, w_ptr, b_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    s1 = tl.sum(x, axis=0)
    s2 = tl.sum(x * x, axis=0)
    mean = s1 / N
    var = s2 / N - mean * mean
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * N + cols, (x - mean) * tl.rsqrt(var + eps) * w + b, mask=mask)


def run(x, weight, bias):
    bsz, seq, hidden = x.size(0), x.size(1), x.size(2)
    y = torch.empty((bsz, seq, hidden), dtype=torch.float32, device=x.device)
    fn = _ln_two_pass if bsz <= 32 else _ln_one_pass
    fn[(bsz * seq,)](x, weight, bias, y, hidden, 1e-5, BLOCK=triton.next_power_of_2(hidden), num_warps=8)
    return y
