"""Scaled masked softmax; the batch is padded to a bucket (as under captured graphs) and the padding is cut off."""
import bisect
import logging

import torch
import triton
import triton.language as tl

log = logging.getLogger(__name__)
BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
_staging: dict = {}


@triton.jit
def _kernel(x_ptr, y_ptr, scale, N: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    keep = offs < N
    v = tl.load(x_ptr + pid * N + offs, mask=keep, other=-float("inf")).to(tl.float32) * scale
    v = v - tl.max(v, 0)
    num = tl.exp(v)
    tl.store(y_ptr + pid * N + offs, (num / tl.sum(num, 0)).to(y_ptr.dtype.element_ty), mask=keep)


def _bucket(n):
    i = bisect.bisect_left(BUCKETS, n)
    return BUCKETS[i] if i < len(BUCKETS) else n


def _buffers(rows, cols, like):
    key = (rows, cols, like.dtype, like.device)
    if (hit := _staging.get(key)) is None:
        hit = _staging[key] = (like.new_zeros((rows, cols)), like.new_empty((rows, cols)))
    return hit


def warps_for(cols):
    for limit, w in ((512, 2), (2048, 4), (8192, 8)):
        if cols <= limit:
            return w
    return 16


def run(x):
    batch_size, cols = x.shape
    padded = _bucket(batch_size)
    if padded != batch_size:
        log.debug("padding %d rows to %d", batch_size, padded)
    src, dst = _buffers(padded, cols, x)
    src[:batch_size].copy_(x)
    _kernel[(padded,)](src, dst, 0.125, N=cols, BLOCK=triton.next_power_of_2(cols), num_warps=warps_for(cols))
    return dst[:batch_size].clone()
