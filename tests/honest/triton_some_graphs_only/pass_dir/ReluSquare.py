import torch
import triton
import triton.language as tl


@triton.jit
def relu_square_kernel(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    v = tl.maximum(v, 0)
    tl.store(o + i, v * v, mask=i < n)


@torch.fx.wrap
def relu_square(x):
    out = torch.empty_like(x)
    relu_square_kernel[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), BLOCK=2048)
    return out


def pattern(x):
    return torch.square(torch.nn.functional.relu(x))


def replacement_args(x):
    return (x,)


def replacement_func():
    return relu_square
