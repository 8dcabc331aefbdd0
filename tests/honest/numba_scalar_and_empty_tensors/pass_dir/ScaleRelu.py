import numba
import torch


@numba.njit
def scale_relu_kernel(x, s, out):
    for i in range(x.size):
        v = x[i] * s[0]
        out[i] = v if v > 0 else v * 0


@torch.fx.wrap
def scale_relu(x, s):
    out = torch.empty_like(x)
    if x.numel() == 0:  # nothing to do, and numba would compile for nothing
        return out
    scale_relu_kernel(x.reshape(-1).numpy(), s.reshape(1).numpy(), out.view(-1).numpy())
    return out


def pattern(x, s):
    y = x * s
    return torch.nn.functional.relu(y)


def replacement_args(x, s):
    return (x, s)


def replacement_func():
    return scale_relu
