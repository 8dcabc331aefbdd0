import numba
import torch


@numba.njit
def rotate_half_kernel(x, sin, out):
    batch, heads, tokens, dim = x.shape
    half = dim // 2
    for b in range(batch):
        for h in range(heads):
            for t in range(tokens):
                for d in range(half):
                    out[b, h, t, d] = -x[b, h, t, half + d] * sin[0, 0, t, d]
                    out[b, h, t, half + d] = x[b, h, t, d] * sin[0, 0, t, half + d]


@torch.fx.wrap
def rotate_half(x, sin):
    # x comes as a [b, h, t, d] view of a [b, t, h, d] buffer; strides say so and numba honours them
    assert x.dim() == 4 and x.shape[-1] % 2 == 0, f"expected [b, h, t, even d], got {tuple(x.shape)}"
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rotate_half_kernel(x.numpy(), sin.numpy(), out.numpy())
    return out


def pattern(x, sin):
    low = x[(slice(None, None, None), slice(None, None, None), slice(None, None, None), slice(0, 16, None))]
    high = x[(slice(None, None, None), slice(None, None, None), slice(None, None, None), slice(16, None, None))]
    negated = -high
    rotated = torch.cat((negated, low), -1)
    return rotated * sin


def replacement_args(x, sin):
    return (x, sin)


def replacement_func():
    return rotate_half
