import torch
from torch.utils.cpp_extension import load_inline

from pass_dir.sources import CPP_SOURCE

extension = load_inline(
    name="mul_relu_add",
    cpp_sources=[CPP_SOURCE],
    functions=["mul_relu_add"],
    extra_cflags=["-O3", "-fopenmp"],
    verbose=False,
)


@torch.fx.wrap
def mul_relu_add(a, b, c):
    return extension.mul_relu_add(a, b, c)


def pattern(a, b, c):
    product = a * b
    positive = torch.nn.functional.relu(product)
    return positive + c


def replacement_args(a, b, c):
    return (a, b, c)


def replacement_func():
    return mul_relu_add
