"""Rows of tensors by number: dense ones along a RowAxis, ragged ones between row pointers.

A batch is a list of row numbers; taking rows is one index_select on the device. Index tensors are made once and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from eval_harness.batch_invariance.row_axis import RowAxis


@dataclass(frozen=True)
class RaggedAxis:
    """A tensor whose row r lies between two row pointers along `dim`."""

    pointers: int
    """Position of the input that holds the row pointers."""
    dim: int = 0


@dataclass(frozen=True)
class PointerAxis:
    """The row pointers of ragged tensors: the running sum of row lengths, from 0, with one entry more than rows."""


Axis = RowAxis | RaggedAxis | PointerAxis


@dataclass(frozen=True)
class RaggedLayout:
    """BatchLayout's counterpart where rows have lengths of their own."""

    inputs: tuple[Axis | None, ...]
    outputs: tuple[RowAxis | RaggedAxis | None, ...]
    size: int
    resizable: bool = True


@dataclass(frozen=True)
class Selection:
    """Row numbers, made ready for a device once: nothing of it is worked out while a clock runs."""

    rows: tuple[int, ...]
    is_prefix: bool
    """Whether they are 0, 1, 2, ..."""
    index: torch.Tensor


class Indices:
    """Selections and element indices on one device, each made once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._selections: dict[tuple[int, ...], Selection] = {}
        self._segments: dict[tuple[tuple[int, ...], tuple[int, ...]], torch.Tensor] = {}

    def of(self, rows: tuple[int, ...]) -> Selection:
        """Rows by number, in this order."""
        found = self._selections.get(rows)
        if found is None:
            index = torch.tensor(rows, dtype=torch.int64).to(self.device)
            found = self._selections[rows] = Selection(rows, rows == tuple(range(len(rows))), index)
        return found

    def of_segments(self, rows: tuple[int, ...], lengths: tuple[int, ...]) -> torch.Tensor:
        """Elements of segments `rows` of a tensor whose segments have these lengths."""
        found = self._segments.get((rows, lengths))
        if found is None:
            ends = list(accumulate(lengths))
            parts = [torch.arange(ends[row] - lengths[row], ends[row]) for row in rows]
            joined = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
            found = self._segments[rows, lengths] = joined.to(self.device)
        return found


@dataclass(frozen=True)
class DenseRows:
    """A tensor with the same number of elements in each row."""

    tensor: torch.Tensor
    axis: RowAxis

    def take(self, selection: Selection, indices: Indices) -> torch.Tensor:
        """Those rows; a view where they are the first ones, for who hands it out to copy."""
        if selection.is_prefix and (self.axis.order == "outer" or self.axis.factor == 1):
            return self.tensor.narrow(self.axis.dim, 0, len(selection.rows) * self.axis.factor)
        return self.axis.select(self.tensor, selection.index)


@dataclass(frozen=True)
class RaggedRows:
    """A tensor whose rows are segments of `lengths` along `dim`."""

    tensor: torch.Tensor
    dim: int
    lengths: tuple[int, ...]

    def take(self, selection: Selection, indices: Indices) -> torch.Tensor:
        """As DenseRows.take."""
        if selection.is_prefix:
            return self.tensor.narrow(self.dim, 0, sum(self.lengths[: len(selection.rows)]))
        return self.tensor.index_select(self.dim, indices.of_segments(selection.rows, self.lengths))

    def row(self, index: int) -> torch.Tensor:
        """One row, as a view."""
        start = sum(self.lengths[:index])
        return self.tensor.narrow(self.dim, start, self.lengths[index])


Rows = DenseRows | RaggedRows


def rows_first(tensor: torch.Tensor, axis: RowAxis) -> torch.Tensor:
    """A view [rows, ...] of a dense tensor. ValueError where its shape has no such axis."""
    num_rows = axis.size(tensor)
    if axis.factor == 1:
        return tensor.movedim(axis.dim, 0)
    if axis.order == "outer":
        return tensor.unflatten(axis.dim, (num_rows, axis.factor)).movedim(axis.dim, 0)
    return tensor.unflatten(axis.dim, (axis.factor, num_rows)).movedim(axis.dim + 1, 0)


def rows_back(rows: torch.Tensor, axis: RowAxis) -> torch.Tensor:
    """The inverse of rows_first, possibly a view."""
    if axis.factor == 1:
        return rows.movedim(0, axis.dim)
    if axis.order == "outer":
        return rows.movedim(0, axis.dim).flatten(axis.dim, axis.dim + 1)
    return rows.movedim(0, axis.dim + 1).flatten(axis.dim, axis.dim + 1)


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Dimensions from the slowest to the fastest in memory."""
    strides = list(tensor.stride())
    return tuple(sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim)))


def in_memory_order(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The tensor laid out densely in that order of dimensions; itself if it is already."""
    back = [order.index(dim) for dim in range(len(order))]
    return tensor.permute(*order).contiguous().permute(*back) if order else tensor
