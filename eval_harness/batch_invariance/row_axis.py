"""RowAxis and BatchLayout: where the rows of a batch lie in each tensor, and rows taken out, joined and replaced.

Found by batch_axis.py or declared by a caller. Ragged batches (row pointers) are not described here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

Index = TypeVar("Index", int, torch.Tensor)
Order = Literal["outer", "inner"]


@dataclass(frozen=True)
class RowAxis:
    """The dimension of a tensor that holds the batch; its size is batch * factor."""

    dim: int
    """Counted from the front, never negative."""
    factor: int = 1
    """Indices of `dim` that one row owns: heads or positions that were folded into it."""
    order: Order = "outer"
    """outer: index = row * factor + j (a row is contiguous); inner: index = j * batch + row."""

    def __post_init__(self) -> None:
        if self.dim < 0 or self.factor < 1 or self.order not in ("outer", "inner"):
            raise ValueError(f"{self}: give dim >= 0, factor >= 1, and order outer or inner")

    def size(self, tensor: torch.Tensor) -> int:
        """Rows in the tensor. Raises ValueError where the shape has no such axis."""
        return self.num_rows(tensor.shape)

    def num_rows(self, shape: Sequence[int]) -> int:
        """Rows in a tensor of that shape. Raises ValueError where the shape has no such axis."""
        if self.dim >= len(shape) or shape[self.dim] % self.factor:
            raise ValueError(f"shape {list(shape)} has no rows along {self}: declare the axis that holds the batch")
        return shape[self.dim] // self.factor

    def row_of(self, index: Index, num_rows: int) -> Index:
        """The row that owns this index (or each of these) of `dim`, in a tensor of num_rows rows."""
        return index // self.factor if self.order == "outer" else index % num_rows  # type: ignore[return-value]

    def resized(self, shape: Sequence[int], num_rows: int) -> tuple[int, ...]:
        """The shape with that many rows."""
        self.num_rows(shape)
        return tuple(num_rows * self.factor if dim == self.dim else size for dim, size in enumerate(shape))

    def select(self, tensor: torch.Tensor, rows: Sequence[int] | torch.Tensor) -> torch.Tensor:
        """A new tensor of these rows, in this order; a row may be repeated."""
        index = torch.as_tensor(rows, dtype=torch.int64, device=tensor.device)
        return self._folded(self._unfolded(tensor).index_select(self._row_dim, index))

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """One tensor with the rows of all parts, in order."""
        return self._folded(torch.cat([self._unfolded(part) for part in parts], dim=self._row_dim))

    def replace(self, tensor: torch.Tensor, rows: Sequence[int] | torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """A copy in which row rows[k] is row k of `values`; tensor and values are left alone."""
        index = torch.as_tensor(rows, dtype=torch.int64, device=tensor.device)
        return self._folded(self._unfolded(tensor).index_copy(self._row_dim, index, self._unfolded(values)))

    def fill(self, tensor: torch.Tensor, rows: Sequence[int] | torch.Tensor, value: Any) -> torch.Tensor:
        """A copy in which every element of these rows is `value`."""
        index = torch.as_tensor(rows, dtype=torch.int64, device=tensor.device)
        return self._folded(self._unfolded(tensor).index_fill(self._row_dim, index, value))

    def by_row(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as [rows, elements of a row]: a copy or a view, for comparing row by row."""
        unfolded = self._unfolded(tensor).movedim(self._row_dim, 0)
        return unfolded.reshape(unfolded.shape[0], -1) if unfolded.numel() else unfolded.flatten(1)

    @property
    def _row_dim(self) -> int:
        """Of the unfolded tensor."""
        return self.dim + (1 if self.order == "inner" and self.factor > 1 else 0)

    def _unfolded(self, tensor: torch.Tensor) -> torch.Tensor:
        num_rows = self.size(tensor)
        if self.factor == 1:
            return tensor
        sizes = (num_rows, self.factor) if self.order == "outer" else (self.factor, num_rows)
        return tensor.unflatten(self.dim, sizes)

    def _folded(self, unfolded: torch.Tensor) -> torch.Tensor:
        return unfolded if self.factor == 1 else unfolded.flatten(self.dim, self.dim + 1)

    def __str__(self) -> str:
        """For a reader: "dim 0", or "dim 0 (4 a row, inner)"."""
        return f"dim {self.dim}" + (f" ({self.factor} a row, {self.order})" if self.factor > 1 else "")


@dataclass(frozen=True)
class BatchLayout:
    """Where the batch lies in every input and output of a graph."""

    inputs: tuple[RowAxis | None, ...]
    """In argument order; None is shared by all rows: a weight, a table, a scalar."""
    outputs: tuple[RowAxis | None, ...]
    """None is not of the batch: it follows no row, or a reduction over all of them, and says nothing about one row."""
    size: int
    """Rows of the graph as it is; 1 where only a graph with more rows showed the axis."""
    resizable: bool = False
    """Whether the graph runs with another number of rows and gives the old rows unchanged values. Without it only the
    composition of a batch and a row's position in it can be tried."""
    ambiguous: tuple[int, ...] = ()
    """Inputs of a graph with one row that may as well be shared: [1, 1, s, s] is a mask of the batch or of all rows.
    The same values in every row of these suit both readings; others would blame a kernel that took the other one."""

    def select(self, inputs: Sequence[torch.Tensor], rows: Sequence[int] | torch.Tensor) -> list[torch.Tensor]:
        """The inputs with these rows only; shared inputs as they are."""
        return [x if axis is None else axis.select(x, rows) for axis, x in zip(self.inputs, inputs, strict=True)]

    def join(self, parts: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """Inputs with the rows of all parts, in order; shared inputs are those of the first part."""
        return [
            xs[0] if axis is None else axis.join(xs)
            for axis, xs in zip(self.inputs, zip(*parts, strict=True), strict=True)
        ]

    def replace(
        self,
        inputs: Sequence[torch.Tensor],
        rows: Sequence[int] | torch.Tensor,
        values: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        """The inputs with row rows[k] taken from row k of `values`; shared inputs as they are."""
        return [
            x if axis is None else axis.replace(x, rows, new)
            for axis, x, new in zip(self.inputs, inputs, values, strict=True)
        ]

    def describe(self, arguments: Sequence[str] = ()) -> str:
        """One line for a reader: "2 rows: in_0 shared, in_1 dim 0 -> dim 0; resizable"."""
        names = arguments or [f"input {index}" for index in range(len(self.inputs))]
        inputs = ", ".join(
            f"{name} {'shared' if axis is None else axis}" for name, axis in zip(names, self.inputs, strict=True)
        )
        outputs = ", ".join("none" if axis is None else str(axis) for axis in self.outputs)
        count = "1 row" if self.size == 1 else f"{self.size} rows"
        return f"{count}: {inputs} -> {outputs}; {'resizable' if self.resizable else 'fixed size'}"


@dataclass(frozen=True)
class NotApplicable:
    """A graph has no batch axis; why, in one line."""

    reason: str
