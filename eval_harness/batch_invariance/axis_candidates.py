"""Guesses of a row axis: one slice of one input is changed, and the outputs show where it went.

A guess pairs an axis of an input with an axis of an output that hold the same number of rows. It says nothing yet about
the other inputs; axis_check.py tries it. Here too: which inputs are parameters, and so never of a batch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from data.graph import Graph
from eval_harness.batch_invariance.axis_reference import KINDS, Draws, Reference, ReferenceRefused, same
from eval_harness.batch_invariance.row_axis import Order, RowAxis
from eval_harness.graph_ir import IRGraph, IRNode, Ref

_PARAMETER_NAME = re.compile(r"_(parameters|buffers)_")
"""In original_name, as Dynamo spells attributes of modules."""
_PARAMETER_POSITIONS = {
    "linear": (1, 2), "conv1d": (1, 2), "conv2d": (1, 2), "conv3d": (1, 2), "conv_transpose1d": (1, 2),
    "conv_transpose2d": (1, 2), "conv_transpose3d": (1, 2), "batch_norm": (1, 2, 3, 4), "instance_norm": (1, 2, 3, 4),
    "layer_norm": (2, 3), "native_layer_norm": (2, 3), "group_norm": (2, 3), "rms_norm": (2,), "prelu": (1,),
    "bilinear": (2, 3),
}  # fmt: skip
"""Operator -> positions of its weights."""
_PARAMETER_KEYWORDS = frozenset({"weight", "bias", "running_mean", "running_var"})
_PASSED_ON = frozenset({
    "to", "t", "transpose", "permute", "contiguous", "float", "half", "bfloat16", "type_as", "detach", "view",
    "reshape", "unsqueeze", "squeeze",
})  # fmt: skip


@dataclass(frozen=True)
class Guess:
    """Rows of one input that may be rows of one output."""

    input: int
    in_axis: RowAxis
    output: int
    out_axis: RowAxis
    num_rows: int

    @property
    def rank(self) -> tuple[int, ...]:
        """The smallest is tried first: leading axes, contiguous rows, no folding, then the finest rows."""
        folded = self.in_axis.factor * self.out_axis.factor
        inner = [self.in_axis.order, self.out_axis.order].count("inner")
        return (self.total, self.in_axis.dim, inner, folded, -self.num_rows, self.input, self.output)

    @property
    def total(self) -> int:
        return self.in_axis.dim + self.out_axis.dim


@dataclass(frozen=True)
class Slice:
    """What one changed slice of an input did."""

    index: int
    changed: list[torch.Tensor | None]
    """For each output where it differs; None where its shape does, or where it is no tensor."""


def axes_of(shape: Sequence[int], num_rows: int, dims: Sequence[int] | None = None) -> list[RowAxis]:
    """Every axis by which a tensor of that shape could hold so many rows."""
    found = []
    for dim in range(len(shape)) if dims is None else dims:
        if shape[dim] % num_rows == 0 and shape[dim]:
            factor = shape[dim] // num_rows
            orders: tuple[Order, ...] = ("outer",) if factor == 1 else ("outer", "inner")
            found += [RowAxis(dim, factor, order) for order in orders]
    # an axis of exactly so many rows before one that holds several indices a row
    return sorted(found, key=lambda axis: axis.factor > 1)


def difference(base: list[torch.Tensor | None], outputs: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Where each output changed; None where it cannot be compared.

    Exact: runs of the same shapes sum in the same order, whatever the other rows hold.
    """
    return [
        None if old is None or new is None or old.shape != new.shape else ~same(old, new, rtol=0.0)
        for old, new in zip(base, outputs, strict=True)
    ]


def is_within_row(changed: torch.Tensor, axis: RowAxis, row: int) -> bool:
    """Whether nothing changed but this row."""
    other = axis.by_row(changed).any(dim=1)
    other[row] = False
    return not bool(other.any())


class Guesser:
    """Makes guesses for the inputs of one graph; the slices of an input's dimension are run once."""

    def __init__(self, reference: Reference, draws: Draws, base: list[torch.Tensor | None]) -> None:
        self.reference, self.draws, self.base = reference, draws, base
        self.effects: dict[tuple[int, int], list[Slice]] = {}

    def guesses(self, inputs: Sequence[int]) -> Iterator[Guess]:
        """Guesses from slices of these inputs, the most likely first; later dimensions are looked at only if asked."""
        most = max((self.draws.base[index].dim() for index in inputs), default=0)
        most_out = max((output.dim() for output in self.base if output is not None), default=0)
        waiting: list[Guess] = []
        for total in range(most + most_out):
            for index in inputs:
                if total < self.draws.base[index].dim():
                    waiting += self._of_dimension(index, total)
            yield from sorted((guess for guess in waiting if guess.total == total), key=lambda guess: guess.rank)

    def slices(self, index: int, dim: int) -> list[Slice]:
        """The first, the last and a middle slice of a dimension, each changed in a run of its own."""
        key = (index, dim)
        if key not in self.effects:
            size = self.draws.base[index].shape[dim]
            self.effects[key] = [
                found for at in sorted({0, size // 2, size - 1}) if (found := self._slice(index, dim, at)) is not None
            ]
        return self.effects[key]

    def _slice(self, index: int, dim: int, at: int) -> Slice | None:
        base = self.draws.base[index]
        axis = RowAxis(dim)
        for kind in KINDS:
            values = self.draws.others[kind][index].narrow(dim, at, 1)
            if torch.equal(values, base.narrow(dim, at, 1)):
                continue  # integers of a narrow range may be drawn the same again
            inputs = list(self.draws.base)
            inputs[index] = axis.replace(base, [at], values)
            try:
                return Slice(at, difference(self.base, self.reference.run(inputs)))
            except ReferenceRefused:
                continue
        return None

    def _of_dimension(self, index: int, dim: int) -> Iterator[Guess]:
        size = self.draws.base[index].shape[dim]
        if size < 2:
            return
        slices = self.slices(index, dim)
        for number, output in enumerate(self.base):
            if output is None or not slices or any(found.changed[number] is None for found in slices):
                continue
            for out_dim, out_size in enumerate(output.shape):
                hit = [(found.index, _indices(found.changed[number], out_dim)) for found in slices]
                if any(len(indices) for _, indices in hit) and all(len(indices) < out_size for _, indices in hit):
                    yield from _matching(index, dim, size, number, out_dim, out_size, hit)


def _matching(
    index: int, dim: int, size: int, output: int, out_dim: int, out_size: int, hit: list[tuple[int, torch.Tensor]]
) -> Iterator[Guess]:
    common = math.gcd(size, out_size)
    for num_rows in range(common, 1, -1):
        if common % num_rows:
            continue
        for in_axis in axes_of((size,), num_rows):
            rows = [in_axis.row_of(at, num_rows) for at, _ in hit]
            for out_axis in axes_of((out_size,), num_rows):
                if all(
                    bool((out_axis.row_of(indices, num_rows) == row).all())
                    for row, (_, indices) in zip(rows, hit, strict=True)
                ):
                    yield Guess(index, _at(in_axis, dim), output, _at(out_axis, out_dim), num_rows)


def _at(axis: RowAxis, dim: int) -> RowAxis:
    return RowAxis(dim, axis.factor, axis.order)


def _indices(changed: torch.Tensor | None, dim: int) -> torch.Tensor:
    assert changed is not None
    return changed.movedim(dim, 0).reshape(changed.shape[dim], -1).any(dim=1).nonzero().flatten()


def parameters(graph: Graph, ir: IRGraph) -> frozenset[int]:
    """Arguments that are weights, by the name that they had in the model or by the operator that takes them.

    A batch never runs along these: without them, the channels of a normalisation over the batch would be its rows.
    """
    found = {
        name for name, spec in graph.specs.items() if spec.original_name and _PARAMETER_NAME.search(spec.original_name)
    }
    for node in ir.calls:
        for value in _weights(node):
            origin = _origin(value, ir)
            if origin is not None:
                found.add(origin)
    chosen = frozenset(index for index, name in enumerate(graph.arguments) if name in found)
    # a graph of parameters alone (a sum of tables, say) has no other inputs to look at
    return chosen if len(chosen) < len(graph.arguments) else frozenset()


def _weights(node: IRNode) -> Iterator[object]:
    if node.op != "call_function":
        return
    positions = _PARAMETER_POSITIONS.get(node.short_target, ())
    if node.short_target == "embedding":
        positions = (1,) if "functional" in node.target else (0,)
    if not positions:
        return
    yield from (node.args[position] for position in positions if position < len(node.args))
    yield from (value for key, value in node.kwargs.items() if key in _PARAMETER_KEYWORDS)


def _origin(value: object, ir: IRGraph) -> str | None:
    """The argument that a value is, seen through casts and views."""
    while isinstance(value, Ref):
        node = ir.by_name[value.name]
        if node.op == "placeholder":
            return node.target
        if node.short_target not in _PASSED_ON or not node.args:
            return None
        value = node.args[0]
    return None
