"""Values that make a changed order of summation show in the last bits, and values for neighbours that may leak.

A row of plain normal numbers hides a reordered sum behind the rounding of a half-precision output: a float32 sum moves
by 1e-7 of itself, a float16 result sees 5e-4. So two thirds of the rows are made of magnitudes 2**-10 .. 2**6, half of
those with nearly all of it cancelling, which leaves a small sum that consists of rounding. Tensors of one sign are only
scaled down: what must be positive, or at most 1, stays so.
"""

from __future__ import annotations

from enum import StrEnum

import torch

UP, DOWN = 6, 10
"""Wide rows are scaled elementwise by 2 ** integer in -DOWN .. UP. Half types need small elements beside large ones, or
every partial sum of theirs is exact in float32."""
HALF_UP = 4
"""For float16, whose squares and sums overflow soon."""
LARGE_LOG2 = 10
CANCELLED_SHARE = 7 / 8
REST_LOG2 = -8
"""What does not cancel is this much smaller, so that the sum is of the size of its rounding errors."""


class RowKind(StrEnum):
    """What a needle row is made of."""

    NATURAL = "natural"
    CANCELLING = "cancelling"
    WIDE = "wide"


_KINDS = tuple(RowKind)


def kind_of(row: int) -> RowKind:
    """The kind of a pool row: kinds take turns, so that few rows hold them all."""
    return _KINDS[row % len(_KINDS)]


def make_needles(
    rows: torch.Tensor, first_row: int, column: int, num_columns: int, generator: torch.Generator
) -> torch.Tensor:
    """Rows [n, ...], the first of them pool row first_row, with every row turned into its kind. A copy, or rows itself.

    Where several tensors are batched, each round of kinds takes every other tensor: a wide query with a wide key makes
    a softmax that looks at one place only, and hides what it sums.
    """
    if not rows.is_floating_point() or rows.numel() == 0:
        return rows
    work = _wide_copy(rows)
    finite = work[torch.isfinite(work)]
    if finite.numel() == 0 or bool(finite.min() == finite.max()):
        return rows  # all ones, all zeros: a constant is meant
    has_both_signs = bool(finite.min() < 0) and bool(finite.max() > 0)
    up = (HALF_UP if rows.dtype == torch.float16 else UP) if has_both_signs else 0
    for kind in (RowKind.WIDE, RowKind.CANCELLING):
        chosen = [
            index
            for index in range(len(rows))
            if kind_of(first_row + index) is kind
            and (num_columns == 1 or ((first_row + index) // len(_KINDS) + column) % 2 == 0)
        ]
        if not chosen:
            continue
        which = torch.tensor(chosen, device=rows.device)
        scaled = _scale(work[which], up, generator)
        if kind is RowKind.CANCELLING and has_both_signs:
            scaled = _cancel(scaled, generator)
        work[which] = scaled
    return _narrow(work, rows.dtype)


def large(rows: torch.Tensor) -> torch.Tensor:
    """The same rows 2 ** LARGE_LOG2 times as large, within a quarter of what the dtype holds."""
    limit = torch.finfo(rows.dtype).max / 4
    return _narrow(torch.clamp(_wide_copy(rows) * 2.0**LARGE_LOG2, -limit, limit), rows.dtype)


def constant(rows: torch.Tensor, value: float) -> torch.Tensor:
    """Rows of one value (0.0 or NaN)."""
    return _narrow(torch.full_like(_wide_copy(rows), value), rows.dtype)


def _scale(rows: torch.Tensor, up: int, generator: torch.Generator) -> torch.Tensor:
    exponents = torch.randint(-DOWN, up + 1, rows.shape, generator=generator, dtype=torch.int32)
    return torch.ldexp(rows, exponents.to(rows.device))


def _cancel(rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Most elements of one dimension become the negatives of others; the dimension takes turns with the rows."""
    if rows.dim() < 2:
        return rows
    for index in range(len(rows)):
        row = rows[index]
        lengths = [dim for dim in range(row.dim()) if row.shape[dim] >= 4]
        if not lengths:
            continue
        # the last dimension is what is reduced most often
        dim = lengths[-1 - index % len(lengths)]
        half = int(row.shape[dim] * CANCELLED_SHARE / 2)
        order = torch.randperm(half, generator=generator).to(rows.device)
        row.narrow(dim, half, half).copy_(-row.narrow(dim, 0, half).index_select(dim, order))
        row.narrow(dim, 2 * half, row.shape[dim] - 2 * half).mul_(2.0**REST_LOG2)
    return rows


def _wide_copy(rows: torch.Tensor) -> torch.Tensor:
    return rows.to(torch.float64 if rows.dtype == torch.float64 else torch.float32, copy=True)


def _narrow(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return rows.to(dtype)
