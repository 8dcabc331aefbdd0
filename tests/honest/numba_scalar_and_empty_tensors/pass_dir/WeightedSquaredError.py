import numba
import torch


@numba.njit
def wse_kernel(a, b, weight, out):
    total = 0.0
    for i in range(a.size):
        d = a[i] - b[i]
        total += d * d * weight[()]
    out[()] = total


@torch.fx.wrap
def weighted_squared_error(a, b, weight):
    out = torch.empty((), dtype=a.dtype, device=a.device)
    wse_kernel(a.reshape(-1).numpy(), b.reshape(-1).numpy(), weight.numpy(), out.numpy())
    return out


def pattern(a, b, weight):
    d = a - b
    return (d * d * weight).sum()


def replacement_args(a, b, weight):
    return (a, b, weight)


def replacement_func():
    return weighted_squared_error
