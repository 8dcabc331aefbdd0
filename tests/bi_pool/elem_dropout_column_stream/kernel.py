import torch
import triton
import triton.language as tl

SEED = 987
LAYER = 3


@triton.jit
def column_dropout(x_ptr, y_ptr, n_cols, p, seed, layer, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, layer * n_cols + c) >= p
    x = tl.load(x_ptr + row * n_cols + c, mask=c < n_cols, other=0.0)
    tl.store(y_ptr + row * n_cols + c, tl.where(keep, x / (1 - p), 0.0), mask=c < n_cols)


def run(x):
    batch, n_cols = x.shape
    y = torch.empty_like(x)
    column_dropout[(triton.cdiv(n_cols, 512), batch)](x, y, n_cols, 0.25, SEED, LAYER, BLOCK=512)
    return y
