import torch
from numba import float32, guvectorize


@guvectorize([(float32[:], float32[:], float32[:])], "(n),(n)->(n)", nopython=True)
def centre_scale_kernel(x, w, out):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    mean = float32(total / x.shape[0])
    for i in range(x.shape[0]):
        out[i] = (x[i] - mean) * w[i]


@torch.fx.wrap
def centre_scale(x, w):
    out = torch.empty_like(x)
    centre_scale_kernel(x.numpy(), w.numpy(), out.numpy())
    return out


def pattern(x, w):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    return centred * w


def replacement_args(x, w):
    return (x, w)


def replacement_func():
    return centre_scale
