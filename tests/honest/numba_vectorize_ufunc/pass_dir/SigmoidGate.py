import math

import numba
import torch


@numba.vectorize(["float32(float32, float32)", "float64(float64, float64)"])
def gate_ufunc(x, g):
    return x / (1.0 + math.exp(-g))


@torch.fx.wrap
def sigmoid_gate(x, g):
    out = torch.empty_like(x)
    gate_ufunc(x.numpy(), g.numpy(), out=out.numpy())
    return out


def pattern(x, g):
    s = torch.sigmoid(g)
    return x * s


def replacement_args(x, g):
    return (x, g)


def replacement_func():
    return sigmoid_gate
