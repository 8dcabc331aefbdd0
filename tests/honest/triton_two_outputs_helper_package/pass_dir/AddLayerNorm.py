import torch
from pass_dir.kernels.layer_norm import add_layer_norm


def pattern(bias, weight, x, residual):
    added = x + residual
    normed = torch.nn.functional.layer_norm(added, (768,), weight, bias, 1e-12)
    return (added, normed)


def replacement_args(bias, weight, x, residual):
    return (x, residual, weight, bias, 1e-12)


def replacement_func():
    return add_layer_norm
