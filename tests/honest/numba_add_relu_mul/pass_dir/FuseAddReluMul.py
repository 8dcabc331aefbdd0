import numba
import numpy as np
import torch


@numba.njit
def _kernel(a, b, c, o):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            o[i, j] = max(a[i, j] + b[j], np.float32(0.0)) * c[i, j]


@torch.fx.wrap
def add_relu_mul(x, bias, scale):
    out = torch.empty_like(x)
    _kernel(x.numpy(), bias.numpy(), scale.numpy(), out.numpy())
    return out


def pattern(in_0, in_1, in_2):
    tmp_0 = in_0 + in_1
    tmp_1 = torch.relu(tmp_0)
    return tmp_1 * in_2


def replacement_args(in_0, in_1, in_2):
    return (in_0, in_1, in_2)


def replacement_func():
    return add_relu_mul
