import torch

from .lib import rms_norm


def pattern(weight, x):
    squared = x.pow(2)
    variance = squared.mean(-1, keepdim=True)
    shifted = variance + 1e-06
    rstd = torch.rsqrt(shifted)
    normed = x * rstd
    return weight * normed


def replacement_args(weight, x):
    return (x, weight)


def replacement_func():
    return rms_norm
