import torch
import triton
import triton.language as tl

NUM_PARTIALS = 256


@triton.jit
def partial_kernel(a, b, partial, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(pid * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = tl.load(a + at, mask=at < n, other=0.0) - tl.load(b + at, mask=at < n, other=0.0)
        acc += d * d
    tl.store(partial + pid, tl.sum(acc, axis=0))


@triton.jit
def final_kernel(partial, out, n, COUNT: tl.constexpr):
    values = tl.load(partial + tl.arange(0, COUNT))
    tl.store(out, tl.sum(values, axis=0) / n)


@torch.fx.wrap
def mse(a, b):
    n = a.numel()
    if n == 0:
        raise ValueError("mean of no elements")
    scratch = torch.empty(NUM_PARTIALS, dtype=torch.float32, device=a.device)
    out = torch.empty((), dtype=a.dtype, device=a.device)
    partial_kernel[(NUM_PARTIALS,)](a.reshape(-1), b.reshape(-1), scratch, n, BLOCK=1024)
    final_kernel[(1,)](scratch, out, n, COUNT=NUM_PARTIALS)
    return out


def pattern(a, b):
    difference = a - b
    squared = difference.pow(2)
    return squared.mean()


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return mse
