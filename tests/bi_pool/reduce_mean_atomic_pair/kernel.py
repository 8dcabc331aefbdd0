import torch
import triton
import triton.language as tl


@triton.jit
def _mean_atomic(x_ptr, out_ptr, N, inv_n, CHUNK, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = tl.program_id(1) * CHUNK
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(start, start + CHUNK, BLOCK):
        c = i + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    tl.atomic_add(out_ptr + row, tl.sum(acc, axis=0) * inv_n)


def _programs_per_row(rows: int) -> int:
    # at most two: a sum of two terms does not depend on who comes first
    return 1 if rows >= 2 * 132 else 2


def run(x):
    bs, c, n = x.shape
    rows = bs * c
    per_row = _programs_per_row(rows)
    out = torch.zeros((bs, c), device=x.device, dtype=torch.float32)
    _mean_atomic[(rows, per_row)](x, out, n, 1.0 / n, n // per_row, BLOCK=1024, num_warps=4)
    return out
