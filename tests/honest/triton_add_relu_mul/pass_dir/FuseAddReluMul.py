import torch
import triton
import triton.language as tl


@triton.jit
def add_relu_mul_kernel(a, b, c, o, n, d, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    # eager rounds after every operator
    s = tl.load(a + i, mask=m) + tl.load(b + i % d, mask=m)
    s = tl.maximum(s, 0.0).to(o.dtype.element_ty)
    tl.store(o + i, s * tl.load(c + i, mask=m), mask=m)


@torch.fx.wrap
def add_relu_mul(x, bias, scale):
    out = torch.empty_like(x)
    n = x.numel()
    add_relu_mul_kernel[(triton.cdiv(n, 512),)](x, bias, scale, out, n, bias.shape[0], BLOCK=512)
    return out


def pattern(in_0, in_1, in_2):
    tmp_0 = in_0 + in_1
    tmp_1 = torch.relu(tmp_0)
    return tmp_1 * in_2


def replacement_args(in_0, in_1, in_2):
    return (in_0, in_1, in_2)


def replacement_func():
    return add_relu_mul
