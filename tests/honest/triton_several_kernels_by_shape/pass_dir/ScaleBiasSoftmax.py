"""softmax(x * scale + mask) over the last axis; the mask is shared by all heads."""

import torch
import triton
import triton.language as tl

MAX_FUSED_COLS = 8192  # a row beyond this does not fit into registers


@triton.jit
def _softmax_one_pass(x, mask, y, heads, rows, cols, scale, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    r = pid % rows
    b = pid // (rows * heads)
    c = tl.arange(0, BLOCK)
    inside = c < cols
    v = tl.load(x + pid * cols + c, mask=inside, other=-float("inf"))
    m = tl.load(mask + (b * rows + r) * cols + c, mask=inside, other=0.0)
    v = v * scale + m
    v = v - tl.max(v, axis=0)
    e = tl.exp(v)
    tl.store(y + pid * cols + c, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def _softmax_online(x, mask, y, heads, rows, cols, scale, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x += pid * cols
    y += pid * cols
    mask += (pid // (rows * heads) * rows + pid % rows) * cols
    c = tl.arange(0, BLOCK)
    peak = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + c < cols
        v = tl.load(x + start + c, mask=inside, other=0.0) * scale + tl.load(mask + start + c, mask=inside, other=0.0)
        v = tl.where(inside, v, -float("inf"))
        new_peak = tl.maximum(peak, v)
        total = tl.where(new_peak == -float("inf"), 0.0, total * tl.exp(peak - new_peak) + tl.exp(v - new_peak))
        peak = new_peak
    top = tl.max(peak, axis=0)
    norm = tl.sum(tl.where(peak == -float("inf"), 0.0, total * tl.exp(peak - top)), axis=0)
    for start in range(0, cols, BLOCK):
        inside = start + c < cols
        v = tl.load(x + start + c, mask=inside, other=0.0) * scale + tl.load(mask + start + c, mask=inside, other=0.0)
        tl.store(y + start + c, tl.exp(v - top) / norm, mask=inside)


@torch.fx.wrap
def scale_mask_softmax(x, mask, scale):
    batch, heads, rows, cols = x.shape
    y = torch.empty_like(x)
    grid = (batch * heads * rows,)
    if cols <= MAX_FUSED_COLS:
        block = triton.next_power_of_2(cols)
        _softmax_one_pass[grid](x, mask, y, heads, rows, cols, scale, BLOCK=block, num_warps=min(max(block // 256, 1), 16))
    else:
        _softmax_online[grid](x, mask, y, heads, rows, cols, scale, BLOCK=4096, num_warps=8)
    return y


def pattern(x, mask):
    scaled = x * 0.125
    masked = scaled + mask
    return torch.nn.functional.softmax(masked, dim=-1)


def replacement_args(x, mask):
    return (x, mask, 0.125)


def replacement_func():
    return scale_mask_softmax
