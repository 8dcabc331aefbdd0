import torch
import triton
import triton.language as tl


@triton.jit
def welford(mean_1, m2_1, n_1, mean_2, m2_2, n_2):
    delta = mean_2 - mean_1
    n = n_1 + n_2
    ratio = tl.where(n == 0.0, 0.0, n_2 / n)
    return mean_1 + delta * ratio, m2_1 + m2_2 + delta * delta * n_1 * ratio, n


@triton.jit
def var_kernel(x_ptr, mean_ptr, var_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    mean, m2, n = tl.reduce((x, tl.zeros_like(x), tl.full([N], 1.0, tl.float32)), 0, welford)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, m2 / n)


def run(x):
    b, n = x.shape
    mean = torch.empty(b, device=x.device, dtype=torch.float32)
    var = torch.empty(b, device=x.device, dtype=torch.float32)
    var_kernel[(b,)](x, mean, var, N=n, num_warps=4)
    return mean, var
