"""Pass folders with numba kernels for the tests of applying them."""

from __future__ import annotations

import json

MANIFEST = "sorted_output_pass_rule_names.json"

ADD_RELU = """
import numba
import torch


@numba.njit
def _add_relu(a, b, out):
    for i in range(a.size):
        x = a[i] + b[i]
        out[i] = x if x > 0 or x != x else 0


@torch.fx.wrap
def add_relu(a, b):
    if a.shape != b.shape or not (a.dtype == b.dtype == torch.float32):
        raise ValueError("serves float32 tensors of one shape")
    if not (a.is_contiguous() and b.is_contiguous()):
        raise ValueError("serves contiguous tensors")
    out = torch.empty(a.shape, dtype=a.dtype)
    _add_relu(a.view(-1).numpy(), b.view(-1).numpy(), out.view(-1).numpy())
    return out


def pattern(a, b):
    return torch.relu(a + b)


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return add_relu
"""
ROW_SUMS = """
import numba
import torch

from pass_dir.shared import check


@numba.njit
def _kernel(x, scaled, sums):
    for i in range(x.shape[0]):
        total = numba.float32(0)
        for j in range(x.shape[1]):
            scaled[i, j] = x[i, j] * numba.float32(2)
            total += scaled[i, j]
        sums[i] = total


@torch.fx.wrap
def scaled_and_sums(x):
    check(x)
    scaled, sums = torch.empty(x.shape), torch.empty(x.shape[:1])
    _kernel(x.numpy(), scaled.numpy(), sums.numpy())
    return scaled, sums


def pattern(x):
    scaled = x * 2
    return scaled, scaled.sum(-1)


def replacement_args(x):
    return (x,)


def replacement_func():
    return scaled_and_sums
"""
SHARED = """
import torch


def check(x):
    if x.dim() != 2 or x.dtype != torch.float32 or not x.is_contiguous():
        raise ValueError("serves contiguous float32 matrices")
"""


def folder(**rules: str) -> dict[str, str]:
    """Files of a pass folder: rule name -> text."""
    return {f"{name}.py": text for name, text in rules.items()} | {MANIFEST: json.dumps(list(rules))}


def add_relu() -> dict[str, str]:
    return folder(FuseAddRelu=ADD_RELU)


def row_sums() -> dict[str, str]:
    return folder(ScaledAndSums=ROW_SUMS) | {"shared.py": SHARED}


def wrong() -> dict[str, str]:
    """Right but for a bias that no comparison overlooks."""
    return folder(WrongAddRelu=ADD_RELU.replace("x = a[i] + b[i]", "x = a[i] + b[i] + numba.float32(0.5)"))
