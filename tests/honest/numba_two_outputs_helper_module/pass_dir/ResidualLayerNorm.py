import torch

from pass_dir.norm_kernels import residual_layer_norm


def pattern(bias, weight, hidden, residual):
    total = hidden + residual
    normed = torch.nn.functional.layer_norm(total, (128,), weight, bias, 1e-05)
    return total, normed


def replacement_args(bias, weight, hidden, residual):
    return hidden, residual, weight, bias


def replacement_func():
    return residual_layer_norm
