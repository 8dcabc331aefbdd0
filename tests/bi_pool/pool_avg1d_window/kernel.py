import torch
import triton
import triton.language as tl

WINDOW = 4


@triton.jit
def avg_pool1d(x_ptr, y_ptr, n_out, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(WINDOW):
        acc += tl.load(x_ptr + i * WINDOW + k, mask=i < n_out, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, acc / WINDOW, mask=i < n_out)


def run(x):
    b, c, length = x.shape
    y = torch.empty((b, c, length // WINDOW), device=x.device, dtype=torch.float32)
    n_out = y.numel()
    # small problems get small blocks so that the device is not left to a handful of programs
    block = 256 if n_out < 132 * 1024 else 1024
    avg_pool1d[(triton.cdiv(n_out, block),)](x, y, n_out, WINDOW=WINDOW, BLOCK=block)
    return y
