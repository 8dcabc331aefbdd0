import math
from functools import partial

import numba
import numpy as np
import torch

K0 = np.float32(math.sqrt(2.0 / math.pi))
K1 = np.float32(0.044715)


@numba.njit
def gelu_tanh(x, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j]
            inner = K0 * (v + K1 * v * v * v)
            out[i, j] = np.float32(0.5) * v * (np.float32(1.0) + np.float32(math.tanh(inner)))


@numba.njit
def leaky_relu(x, out, slope):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j]
            out[i, j] = v if v > 0 else v * slope


leaky_relu_02 = partial(leaky_relu, slope=np.float32(0.2))
KERNELS = [gelu_tanh, leaky_relu_02]


@torch.fx.wrap
def gelu_leaky_cat(*parts):
    widths = [part.shape[1] for part in parts]
    out = torch.empty((parts[0].shape[0], sum(widths)), dtype=parts[0].dtype)
    start = 0
    for index, (part, width) in enumerate(zip(parts, widths)):
        KERNELS[index](part.numpy(), out[:, start : start + width].numpy())
        start += width
    return out


def pattern(a, b):
    left = torch.nn.functional.gelu(a, approximate="tanh")
    right = torch.nn.functional.leaky_relu(b, 0.2)
    return torch.cat([left, right], 1)


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return gelu_leaky_cat
