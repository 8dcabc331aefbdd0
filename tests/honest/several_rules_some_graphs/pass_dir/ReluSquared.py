import numba
import torch


@numba.njit(fastmath=True)
def relu_squared_kernel(x, out):
    for i in range(len(x)):
        v = max(x[i], 0)
        out[i] = v * v


@torch.fx.wrap
def relu_squared(x):
    out = torch.empty_like(x)
    relu_squared_kernel(x.flatten().numpy(), out.flatten().numpy())
    return out


def pattern(x):
    r = torch.nn.functional.relu(x)
    return torch.square(r)


def replacement_args(x):
    return (x,)


def replacement_func():
    return relu_squared
