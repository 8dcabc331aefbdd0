import torch
import triton
import triton.language as tl
from column_plan import make_plan


@triton.jit
def _partial(x_ptr, ml_ptr, cols, chunk, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    split = tl.program_id(1)
    hi = tl.minimum(split * chunk + chunk, cols)
    m = -float("inf")
    d = 0.0
    for k in range(split * chunk, hi, BLOCK):
        c = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + c, mask=c < hi, other=-float("inf")).to(tl.float32)
        mn = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - mn) + tl.sum(tl.exp(x - mn), axis=0)
        m = mn
    at = (row * tl.num_programs(1) + split) * 2
    tl.store(ml_ptr + at, m)
    tl.store(ml_ptr + at + 1, d)


@triton.jit
def _final(x_ptr, ml_ptr, y_ptr, cols, num_splits, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    d = 0.0
    for s in range(0, num_splits):
        ms = tl.load(ml_ptr + (row * num_splits + s) * 2)
        ds = tl.load(ml_ptr + (row * num_splits + s) * 2 + 1)
        mn = tl.maximum(m, ms)
        d = d * tl.exp(m - mn) + ds * tl.exp(ms - mn)
        m = mn
    for k in range(0, cols, BLOCK):
        c = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * cols + c, tl.exp(x - m) / d, mask=c < cols)


def run(x):
    batch, cols = x.shape
    plan = make_plan(rows=batch, cols=cols)
    ml = torch.empty((batch, plan.num_splits, 2), device=x.device, dtype=torch.float32)
    y = torch.empty((batch, cols), device=x.device, dtype=torch.float32)
    _partial[(batch, plan.num_splits)](x, ml, cols, plan.chunk, BLOCK=plan.block)
    _final[(batch,)](x, ml, y, cols, plan.num_splits, BLOCK=plan.block)
    return y
