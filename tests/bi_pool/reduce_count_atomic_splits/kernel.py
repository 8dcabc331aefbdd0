import torch
import triton
import triton.language as tl


@triton.jit
def count_positive(x_ptr, n_ptr, N, PER_PROGRAM: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * PER_PROGRAM + tl.arange(0, PER_PROGRAM)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    tl.atomic_add(n_ptr + row, tl.sum((x > 0).to(tl.int32), axis=0))


def run(x):
    rows, N = x.shape
    per_program = 1024 if rows < 20 else 4096 if rows < 100 else 16384
    counts = torch.zeros(rows, device=x.device, dtype=torch.int32)
    count_positive[(rows, triton.cdiv(N, per_program))](x, counts, N, PER_PROGRAM=per_program)
    return counts, counts.to(torch.float32) / N
