"""Gated linear recurrence h_t = a_t h_{t-1} + x_t in a fixed number of segments, with carries applied in order."""
import torch
import triton
import triton.language as tl

RECURRENCE_SEGMENTS = 4


@triton.jit
def _segment(a_ptr, x_ptr, h_ptr, prod_ptr, T, D, SEG: tl.constexpr, SPAN, BD: tl.constexpr):
    b, s = tl.program_id(0), tl.program_id(1)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    ok = d < D
    h = tl.zeros((BD,), tl.float32)
    p = tl.full((BD,), 1.0, tl.float32)
    for t in range(s * SPAN, tl.minimum(s * SPAN + SPAN, T)):
        a = tl.load(a_ptr + (b * T + t) * D + d, mask=ok, other=0.0)
        x = tl.load(x_ptr + (b * T + t) * D + d, mask=ok, other=0.0)
        h = a * h + x
        p = p * a
        tl.store(h_ptr + (b * T + t) * D + d, h, mask=ok)
        tl.store(prod_ptr + (b * T + t) * D + d, p, mask=ok)


@triton.jit
def _carry(h_ptr, prod_ptr, y_ptr, T, D, SEG: tl.constexpr, SPAN, BD: tl.constexpr):
    b = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    ok = d < D
    carry = tl.zeros((BD,), tl.float32)
    for s in range(SEG):
        last = carry
        for t in range(s * SPAN, tl.minimum(s * SPAN + SPAN, T)):
            h = tl.load(h_ptr + (b * T + t) * D + d, mask=ok, other=0.0)
            p = tl.load(prod_ptr + (b * T + t) * D + d, mask=ok, other=0.0)
            last = h + p * carry
            tl.store(y_ptr + (b * T + t) * D + d, last, mask=ok)
        carry = last


def gated_scan(a, x):
    bsz, T, D = x.shape
    span = triton.cdiv(T, RECURRENCE_SEGMENTS)
    h, prod, y = (torch.empty_like(x) for _ in range(3))
    # channels are independent, so the width of a channel tile may follow the batch
    bd = 32 if bsz < 16 else 128
    tiles = triton.cdiv(D, bd)
    _segment[(bsz, RECURRENCE_SEGMENTS, tiles)](a, x, h, prod, T, D, RECURRENCE_SEGMENTS, span, bd, num_warps=1)
    _carry[(bsz, tiles)](h, prod, y, T, D, RECURRENCE_SEGMENTS, span, bd, num_warps=1)
    return y


def run(a, x):
    return gated_scan(a, x)
