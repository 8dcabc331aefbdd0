import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def group_norm_tanh_kernel(x, w, b, y, group_size, pixels, channels_per_group, groups, eps, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    base = pid.to(tl.int64) * group_size
    first_channel = (pid % groups) * channels_per_group
    offs = tl.arange(0, BLOCK)
    # Welford is not needed: two sweeps over L2-resident data
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, group_size, BLOCK):
        acc += tl.load(x + base + i + offs, mask=i + offs < group_size, other=0.0)
    mean = tl.sum(acc, 0) / group_size
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, group_size, BLOCK):
        m = i + offs < group_size
        d = tl.where(m, tl.load(x + base + i + offs, mask=m, other=0.0) - mean, 0.0)
        acc += d * d
    rstd = libdevice.rsqrt(tl.sum(acc, 0) / group_size + eps)
    for i in range(0, group_size, BLOCK):
        m = i + offs < group_size
        c = first_channel + (i + offs) // pixels
        v = (tl.load(x + base + i + offs, mask=m, other=0.0) - mean) * rstd
        v = v * tl.load(w + c, mask=m, other=0.0) + tl.load(b + c, mask=m, other=0.0)
        tl.store(y + base + i + offs, libdevice.tanh(v), mask=m)


@torch.fx.wrap
def group_norm_tanh(x, weight, bias, groups):
    n, c = x.shape[:2]
    pixels = x[0, 0].numel()
    y = torch.empty_like(x)
    per_group = c // groups
    group_norm_tanh_kernel[(n * groups,)](
        x, weight, bias, y, per_group * pixels, pixels, per_group, groups, 1e-5, BLOCK=1024, num_warps=8
    )
    return y


def pattern(bias, weight, x):
    normed = torch.nn.functional.group_norm(x, 8, weight, bias, 1e-05)
    return torch.tanh(normed)


def replacement_args(bias, weight, x):
    return (x, weight, bias, 8)


def replacement_func():
    return group_norm_tanh
