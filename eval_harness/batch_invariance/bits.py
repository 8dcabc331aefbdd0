"""Tensors as bits: what "the same" means here. -0.0 is not 0.0, and a NaN equals a NaN with the same bits only."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers of the same width (complex128: a pair of them). No copy, whatever the strides."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype == torch.complex128:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTEGERS[tensor.element_size()])


def differ(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Whether any bit differs, as a bool scalar on the tensors' device: nothing waits for it. Shapes are equal."""
    return (bits_of(left) != bits_of(right)).any()


@dataclass(frozen=True)
class BitDifference:
    """How two tensors of one shape differ."""

    num_elements: int
    """Elements that differ."""
    num_compared: int
    first: tuple[int, ...]
    """Index of the first that differs."""
    left: float
    right: float
    """The values there."""
    max_ulp: int | None
    """Units in the last place between the two, over elements that are finite in both; None where there is no such."""
    only_nan_left: bool
    """Every difference is a NaN on the left where the right is a number."""


def describe_difference(left: torch.Tensor, right: torch.Tensor) -> BitDifference:
    """Count and place of differing bits. Waits for the device; ValueError if there are none."""
    left, right = left.cpu().contiguous(), right.cpu().contiguous()
    unequal = bits_of(left) != bits_of(right)
    if left.dtype == torch.complex128:
        unequal = unequal.any(-1)
    where = unequal.nonzero()
    if len(where) == 0:
        raise ValueError("no bits differ")
    first = tuple(int(index) for index in where[0])
    one, other = left[unequal], right[unequal]
    return BitDifference(
        len(where),
        left.numel(),
        first,
        _number(left[first]),
        _number(right[first]),
        _max_ulp(one, other),
        only_nan_left=one.is_floating_point() and bool((_is_nan(one) & ~_is_nan(other)).all()),
    )


def _max_ulp(left: torch.Tensor, right: torch.Tensor) -> int | None:
    if left.is_complex():
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    if not left.is_floating_point():
        return None
    finite = torch.isfinite(_wide(left)) & torch.isfinite(_wide(right))
    if not bool(finite.any()):
        return None
    steps = (_ordered(left[finite]) - _ordered(right[finite])).abs()
    return int(steps.max())


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Floats as integers that count their steps from 0.0; both zeros are 0, so a flipped zero is 0 steps away."""
    width = 8 * values.element_size()
    raw = bits_of(values).to(torch.int64)
    magnitude = raw & ((1 << (width - 1)) - 1)
    negative = (raw < 0) if width > 8 else (raw >= 128)
    return torch.where(negative, -magnitude, magnitude)


def _wide(values: torch.Tensor) -> torch.Tensor:
    # eight-bit floats have hardly any operators of their own
    return values if values.element_size() > 1 else values.to(torch.float32)


def _is_nan(values: torch.Tensor) -> torch.Tensor:
    return torch.isnan(_wide(values))


def _number(value: torch.Tensor) -> float:
    return float(value.abs() if value.is_complex() else value.to(torch.float64))
