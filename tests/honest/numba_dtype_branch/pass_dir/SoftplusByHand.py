import math

import numba
import numpy as np
import torch


@numba.njit
def softplus32(x, out):
    """Single precision: exp and log in double cost little and keep the last bit."""
    for i in range(x.shape[0]):
        out[i] = np.float32(math.log(1.0 + math.exp(np.float64(x[i]))))


@numba.njit
def softplus64(x, out):
    for i in range(x.shape[0]):
        out[i] = math.log(math.exp(x[i]) + 1.0)


@torch.fx.wrap
def softplus(x):
    assert isinstance(x, torch.Tensor), f"expected a tensor, got {type(x).__name__}"
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.dtype is torch.float32:
        softplus32(x.view(-1).numpy(), out.view(-1).numpy())
    elif x.dtype is torch.float64:
        softplus64(x.view(-1).numpy(), out.view(-1).numpy())
    else:
        raise TypeError(f"softplus: {x.dtype} of shape {list(x.shape)} is not supported; expected float32 or float64")
    return out


def pattern(x):
    return torch.log(torch.exp(x) + 1.0)


def replacement_args(x):
    return (x,)


def replacement_func():
    return softplus
