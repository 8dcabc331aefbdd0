"""The pool of rows that batches are made of: needles, whose outputs are compared, and neighbours that might leak.

The first rows of the pool are needles. They are the rows given, each turned into its kind (needles.py); where more are
needed, copies of given rows whose elements are rolled, which keeps every value in its domain. Behind them lies one row
each of large numbers, zeros and NaN. Any batch is a list of pool rows, so a batch costs one copy on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

import torch

from eval_harness.batch_invariance.needles import constant, large, make_needles
from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis
from eval_harness.batch_invariance.rows import (
    DenseRows,
    Indices,
    PointerAxis,
    RaggedAxis,
    RaggedLayout,
    RaggedRows,
    Rows,
    in_memory_order,
    memory_order,
    rows_back,
    rows_first,
)

Layout = BatchLayout | RaggedLayout


class Filler(StrEnum):
    """What stands beside the needles."""

    NEEDLES = "other rows"
    LARGE = "large"
    ZEROS = "zeros"
    NAN = "NaN"
    DUPLICATES = "duplicates"
    SHORT = "the shortest rows"
    LONG = "the longest rows"


SPECIAL_FILLERS = (Filler.LARGE, Filler.ZEROS, Filler.NAN)


@dataclass(frozen=True)
class _Column:
    """One input: shared, or all rows of the pool."""

    rows: Rows | None
    order: tuple[int, ...]
    """How the given tensor lay in memory."""
    shared: Any = None
    is_pointer: bool = False
    lengths: tuple[int, ...] = ()


class RowPool:
    """Rows and the inputs of any batch of them.

    num_needles: pool rows 0 .. num_needles - 1 are needles. ValueError where the inputs do not fit the layout.
    """

    def __init__(self, inputs: Sequence[Any], layout: Layout, *, num_needles: int, seed: int) -> None:
        if len(inputs) != len(layout.inputs):
            raise ValueError(f"{len(inputs)} inputs, and axes for {len(layout.inputs)}: give one axis (or None) each")
        self.layout = layout
        self.num_needles = num_needles
        self.device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))
        self.indices = Indices(self.device)
        self._generator = torch.Generator().manual_seed(seed)
        self._lengths = {
            index: _row_lengths(inputs[index])
            for index, axis in enumerate(layout.inputs)
            if isinstance(axis, PointerAxis)
        }
        floats = [
            index
            for index, (axis, value) in enumerate(zip(layout.inputs, inputs, strict=True))
            if isinstance(axis, RowAxis | RaggedAxis) and value.is_floating_point()
        ]
        num_rows = num_needles + (len(SPECIAL_FILLERS) if floats else 0)
        self.sources = tuple(row % layout.size for row in range(num_rows))
        """Given row that each pool row was made from."""
        self.fillers: dict[Filler, int] = {}
        """Pool row of each kind of neighbour that there is."""
        if floats:
            self.fillers = {filler: num_needles + index for index, filler in enumerate(SPECIAL_FILLERS)}
        self.by_length: tuple[int, ...] = ()
        """Needles from the shortest to the longest, where rows are ragged."""
        if self._lengths:
            lengths = self.lengths(next(iter(self._lengths)), tuple(range(num_needles)))
            self.by_length = tuple(sorted(range(num_needles), key=lengths.__getitem__))
            self.fillers |= {Filler.SHORT: self.by_length[0], Filler.LONG: self.by_length[-1]}
        self._columns = [
            self._column(value, axis, floats.index(index) if index in floats else 0, len(floats))
            for index, (value, axis) in enumerate(zip(inputs, layout.inputs, strict=True))
        ]

    def lengths(self, pointers: int, rows: tuple[int, ...]) -> tuple[int, ...]:
        """Lengths of pool rows by the row pointers that are input number `pointers`."""
        given = self._lengths[pointers]
        return tuple(given[self.sources[row]] for row in rows)

    def inputs(self, rows: tuple[int, ...], *, copy_shared: bool = False) -> list[Any]:
        """New inputs for a batch of these pool rows; shared ones are not copied unless asked for."""
        return [self._take(column, rows, copy_shared) for column in self._columns]

    def shared(self) -> list[torch.Tensor]:
        """The tensors that all rows share."""
        return [
            column.shared
            for column in self._columns
            if isinstance(column.shared, torch.Tensor) and not column.is_pointer
        ]

    def output_rows(self, outputs: Sequence[torch.Tensor], rows: tuple[int, ...]) -> list[Rows]:
        """The outputs of a batch of these pool rows, as rows; those without a batch axis are left out.

        ValueError where an output has another number of rows than the batch.
        """
        if len(outputs) != len(self.layout.outputs):
            raise ValueError(f"{len(outputs)} outputs, and axes for {len(self.layout.outputs)}")
        found: list[Rows] = []
        for output, axis in zip(outputs, self.layout.outputs, strict=True):
            if axis is None:
                continue
            if isinstance(axis, RowAxis):
                factor, rest = divmod(output.shape[axis.dim], len(rows))
                if rest or (factor != axis.factor and axis.factor > 1):
                    raise ValueError(f"an output of {output.shape[axis.dim]} along {axis} for a batch of {len(rows)}")
                # an output may be folded though only its dimension was declared
                found.append(DenseRows(output, axis if factor == axis.factor else replace(axis, factor=factor)))
                continue
            lengths = self.lengths(axis.pointers, rows)
            if output.shape[axis.dim] != sum(lengths):
                raise ValueError(
                    f"a ragged output of {output.shape[axis.dim]} elements, and {sum(lengths)} in the rows"
                )
            found.append(RaggedRows(output, axis.dim, lengths))
        return found

    def num_bytes(self, num_rows: int) -> int:
        """Bytes of the batched inputs of that many rows, about."""
        return sum(column.rows.tensor.nbytes * num_rows // len(self.sources) for column in self._columns if column.rows)

    def _take(self, column: _Column, rows: tuple[int, ...], copy_shared: bool) -> Any:
        if column.is_pointer:
            lengths = torch.tensor([0, *(column.lengths[row] for row in rows)], dtype=torch.int64)
            return lengths.cumsum(0).to(device=self.device, dtype=column.shared.dtype)
        if column.rows is None:
            is_tensor = isinstance(column.shared, torch.Tensor)
            return column.shared.clone() if copy_shared and is_tensor else column.shared
        taken = column.rows.take(self.indices.of(rows), self.indices)
        laid_out = in_memory_order(taken, column.order)
        # a prefix is a view of the pool, which a kernel may write to
        return laid_out.clone() if laid_out.data_ptr() == column.rows.tensor.data_ptr() else laid_out

    def _column(self, value: Any, axis: Any, place: int, num_floats: int) -> _Column:
        if axis is None:
            return _Column(None, (), shared=value)
        order = memory_order(value)
        if isinstance(axis, PointerAxis):
            lengths = tuple(_row_lengths(value)[source] for source in self.sources)
            return _Column(None, order, shared=value, is_pointer=True, lengths=lengths)
        if isinstance(axis, RaggedAxis):
            return _Column(self._ragged(value, axis, place, num_floats), order)
        if axis.size(value) != self.layout.size:
            raise ValueError(f"an input of {axis.size(value)} rows along {axis}, and a batch of {self.layout.size}")
        rows = self._dense(rows_first(value, axis), place, num_floats)
        return _Column(DenseRows(in_memory_order(rows_back(rows, axis), order), axis), order)

    def _dense(self, given: torch.Tensor, place: int, num_floats: int) -> torch.Tensor:
        rows = given.index_select(0, self.indices.of(self.sources).index)
        if not given.is_floating_point():
            return rows
        size, count = self.layout.size, self.num_needles
        flat = rows.view(len(rows), -1)
        for start in range(size, count, size):
            end = min(start + size, count)
            flat[start:end] = flat[start:end].roll(self._shift(flat.shape[1]), 1)
        natural = rows[count:].clone()
        needles = make_needles(rows[:count], 0, place, num_floats, self._generator)
        return torch.cat(
            [needles, large(natural[:1]), constant(natural[1:2], 0.0), constant(natural[2:3], float("nan"))]
        )

    def _ragged(self, value: torch.Tensor, axis: RaggedAxis, place: int, num_floats: int) -> RaggedRows:
        given = RaggedRows(value, axis.dim, self._lengths[axis.pointers])
        if sum(given.lengths) != value.shape[axis.dim]:
            raise ValueError(f"row pointers end at {sum(given.lengths)}, and the input has {value.shape[axis.dim]}")
        made = []
        for row, source in enumerate(self.sources):
            own = given.row(source)
            if value.is_floating_point():
                own = self._ragged_row(own, row, place, num_floats)
            made.append(own)
        lengths = self.lengths(axis.pointers, tuple(range(len(self.sources))))
        return RaggedRows(torch.cat(made, axis.dim), axis.dim, lengths)

    def _ragged_row(self, own: torch.Tensor, row: int, place: int, num_floats: int) -> torch.Tensor:
        if row >= self.num_needles:
            makers = (large, lambda rows: constant(rows, 0.0), lambda rows: constant(rows, float("nan")))
            return makers[row - self.num_needles](own)
        if row >= self.layout.size:
            own = own.reshape(-1).roll(self._shift(own.numel())).reshape(own.shape)
        return make_needles(own[None], row, place, num_floats, self._generator)[0]

    def _shift(self, num_elements: int) -> int:
        return int(torch.randint(0, max(num_elements, 1), (), generator=self._generator))


def _row_lengths(pointers: torch.Tensor) -> tuple[int, ...]:
    """Lengths between row pointers; ValueError if they do not rise from 0."""
    values = pointers.tolist()
    lengths = tuple(end - start for start, end in pairwise(values))
    if not values or values[0] != 0 or any(length < 0 for length in lengths):
        raise ValueError("row pointers must rise from 0, with one entry more than rows")
    return lengths
