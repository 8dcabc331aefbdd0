import numba
import torch
import torch.nn.functional as F


@numba.njit(error_model="numpy")
def layer_norm_clip_kernel(x, w, b, out, eps, low, high):
    for i in range(x.shape[0]):
        s = 0.0
        for j in range(x.shape[1]):
            s += x[i, j]
        mu = s / x.shape[1]
        s = 0.0
        for j in range(x.shape[1]):
            s += (x[i, j] - mu) ** 2
        r = 1.0 / (s / x.shape[1] + eps) ** 0.5
        for j in range(x.shape[1]):
            y = (x[i, j] - mu) * r * w[j] + b[j]
            out[i, j] = min(max(y, low), high)


@torch.fx.wrap
def layer_norm_clip(x, weight, bias, eps, bounds):
    low, high = bounds
    if not low <= high:
        raise ValueError(f"empty interval [{low}, {high}]")
    d = x.size(-1)
    out = torch.empty_like(x)
    layer_norm_clip_kernel(
        x.contiguous().view(-1, d).numpy(), weight.numpy(), bias.numpy(), out.view(-1, d).numpy(), eps, low, high
    )
    return out


def pattern(bias, weight, x):
    normed = F.layer_norm(input=x, normalized_shape=(80,), weight=weight, bias=bias, eps=1e-06)
    return F.hardtanh(normed, min_val=-1.0, max_val=1.0, inplace=False)


def replacement_args(bias, weight, x):
    return (x, weight, bias, 1e-06, (-1.0, 1.0))


def replacement_func():
    return layer_norm_clip
