import numba
import numpy as np
import torch

HEADS = 4


@numba.njit
def bias_scale(x, bias, out, scale):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] + bias[j]) * scale


@torch.fx.wrap
def bias_split_heads(x, bias):
    batch, tokens, width = x.shape
    buffer = torch.empty_like(x)
    rows = (batch * tokens, width)
    bias_scale(x.reshape(rows).numpy(), bias.numpy(), buffer.view(rows).numpy(), np.float32(0.25))
    heads = buffer.view(batch, tokens, HEADS, width // HEADS)
    return heads.transpose(1, 2)


def pattern(x, bias):
    added = x + bias
    split = added.view(2, 10, 4, 16)
    heads = split.transpose(1, 2)
    return heads * 0.25


def replacement_args(x, bias):
    return (x, bias)


def replacement_func():
    return bias_split_heads
