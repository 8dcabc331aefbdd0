import numba
import numpy as np
import torch


@numba.njit(parallel=True)
def bn_relu(x, mean, var, weight, bias, y):
    planes, pixels = x.shape
    channels = mean.size
    for p in numba.prange(planes):
        c = p % channels
        scale = weight[c] / np.sqrt(var[c] + np.float32(1e-5))
        shift = bias[c] - mean[c] * scale
        for i in range(pixels):
            v = x[p, i] * scale + shift
            # "not below", so that a NaN stays one as in eager
            y[p, i] = np.float32(0) if v < 0 else v


@torch.fx.wrap
def batch_norm_relu(x, running_mean, running_var, weight, bias):
    n, c, *space = x.shape
    pixels = 1
    for extent in space:
        pixels *= extent
    y = torch.empty_like(x)
    parameters = (p.numpy() for p in (running_mean, running_var, weight, bias))
    bn_relu(x.reshape(n * c, pixels).numpy(), *parameters, y.view(n * c, pixels).numpy())
    return y


def pattern(running_mean, running_var, bias, weight, x):
    normed = torch.nn.functional.batch_norm(x, running_mean, running_var, weight, bias, False, 0.1, 1e-05)
    return torch.nn.functional.relu(normed, inplace=True)


def replacement_args(running_mean, running_var, bias, weight, x):
    return (x, running_mean, running_var, weight, bias)


def replacement_func():
    return batch_norm_relu
