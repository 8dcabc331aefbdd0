"""A graph with another number of rows: shapes along the found axes, and sizes that model.py has written in it.

Which literals follow the batch is not known, so several readings are tried; one counts only if the graph runs and gives
the old rows the old values. `resized_graph` is for whoever runs a graph at other batch sizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from data.graph import Graph, MalformedGraphError
from data.syntax import parse_source
from eval_harness.batch_invariance.axis_reference import Reference, ReferenceRefused, same
from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis
from eval_harness.variant_changes import MIN_LITERAL, Change, rebuilt, resized

RESIZED_RTOL = 1e-7
"""Between float64 runs of other shapes: a kernel may sum a row in another order there."""
_SIZE_CALLS = frozenset({
    "view", "reshape", "expand", "repeat", "tile", "broadcast_to", "unflatten", "zeros", "ones", "empty", "full",
    "new_zeros", "new_ones", "new_empty", "new_full", "arange",
})  # fmt: skip
Reading = Literal["kept", "first", "leading", "sizes", "equal", "multiples"]
READINGS: tuple[Reading, ...] = ("kept", "first", "leading", "sizes", "equal", "multiples")
"""Which integers of model.py follow the batch: none; the first size of view, zeros and the like, if it is a batch or a
folded one; the same if it is any multiple of the batch; every size of such calls that is a batch or a folded one; every
integer from 7 on that is one; every size of such calls that is a multiple."""


@dataclass(frozen=True)
class Resized:
    """A graph with another number of rows, ready to be run."""

    reference: Reference
    graph: Graph
    reading: Reading
    inputs: tuple[RowAxis | None, ...]


def resized_graph(graph: Graph, layout: BatchLayout, num_rows: int) -> Graph | None:
    """The graph with that many rows, as files of its own; None if no reading of its literals gives the old values.

    The graph itself for layout.size. A resizable layout may still refuse a size (a slice of the last 512 rows, say).
    """
    if num_rows == layout.size:
        return graph
    found = checked_resize(graph, layout, num_rows)
    return found.graph if found else None


def checked_resize(graph: Graph, layout: BatchLayout, num_rows: int) -> Resized | None:
    """The graph with another number of rows and the reading that gave it; None as in resized_graph."""
    try:
        reference = Reference.load(graph)
        base = reference.draw(graph, 0)
        reference, outputs = reference.first_run(base)
        return resize(reference, layout.inputs, layout.outputs, base, outputs, layout.size, num_rows)
    except (ReferenceRefused, RuntimeError):
        return None


def resize(
    reference: Reference,
    in_axes: Sequence[RowAxis | None],
    out_axes: Sequence[RowAxis | None],
    base: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor | None],
    old: int,
    new: int,
    *,
    readings: Sequence[Reading] = READINGS,
    seed: int = 1,
) -> Resized | None:
    """The graph with `new` rows instead of `old`, by the first reading that works. Raises ReferenceRefused."""
    graph = reference.graph
    for reading, source in sources(graph, in_axes, out_axes, old, new, readings):
        try:
            changed = with_rows(graph, in_axes, new, source)
            ready = reference if source == graph.model_source else Reference.load(changed)
            ready = Reference(changed, ready.ir, ready.function, reference.written)
            drawn = ready.draw(changed, seed)
            # in the first places and in the last: arange(1) kept would read row 0 for every row
            count = min(old, new)
            if all(
                _same_rows(out_axes, outputs, ready.run(_with_rows(drawn, base, in_axes, places)), places, new)
                for places in dict.fromkeys((range(count), range(new - count, new)))
            ):
                return Resized(ready, changed, reading, tuple(in_axes))
        except (ReferenceRefused, MalformedGraphError):
            continue
    return None


def with_rows(graph: Graph, axes: Sequence[RowAxis | None], num_rows: int, source: str) -> Graph:
    """The graph's files with num_rows rows along each axis, and this model.py."""
    by_name = dict(zip(graph.arguments, axes, strict=True))
    specs = []
    for name, spec in graph.specs.items():
        axis = by_name.get(name)
        if axis is not None:
            change = Change(spec.shape[axis.dim], ((name, axis.dim),), "kept")
            spec = resized(spec, change, num_rows * axis.factor)
        specs.append(spec)
    return rebuilt(graph, specs, source)


def sources(
    graph: Graph,
    in_axes: Sequence[RowAxis | None],
    out_axes: Sequence[RowAxis | None],
    old: int,
    new: int,
    readings: Sequence[Reading] = READINGS,
) -> Iterator[tuple[Reading, str]]:
    """Texts of model.py for `new` rows, each another one."""
    factors = frozenset(axis.factor for axis in (*in_axes, *out_axes) if axis is not None) | {1}
    seen: set[str] = set()
    for reading in readings:
        source = graph.model_source if reading == "kept" else _rewritten(graph.model_source, reading, old, new, factors)
        if source not in seen:
            seen.add(source)
            yield reading, source


def _rewritten(source: str, reading: Reading, old: int, new: int, factors: frozenset[int]) -> str:
    tree = parse_source(source)
    followed = _Followed(reading, old, new, factors)
    changed = followed.visit(tree)
    return ast.unparse(changed) + "\n" if followed.count else source


class _Followed(ast.NodeTransformer):
    """Changes the integers that follow the batch, by one reading."""

    def __init__(self, reading: Reading, old: int, new: int, factors: frozenset[int]) -> None:
        self.reading, self.old, self.new, self.factors = reading, old, new, factors
        self.count = 0

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        return node  # -1 is no size

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self.reading == "equal" and type(node.value) is int and node.value >= MIN_LITERAL:
            return self._followed(node, folded=False)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if self.reading == "equal" or not (isinstance(node.func, ast.Attribute) and node.func.attr in _SIZE_CALLS):
            return node
        places = _size_places(node)
        if self.reading in ("first", "leading"):
            places = places[:1]
        for owner, index in places:
            size = owner[index]
            if isinstance(size, ast.Constant):
                owner[index] = self._followed(size, folded=self.reading in ("leading", "multiples"))
        return node

    def _followed(self, node: ast.Constant, *, folded: bool) -> ast.Constant:
        """The constant for the new number of rows; folded: any multiple of the old one follows."""
        value: Any = node.value
        if type(value) is not int or value <= 0 or value % self.old:
            return node
        factor = value // self.old
        if factor not in self.factors and not folded:
            return node
        self.count += 1
        return ast.copy_location(ast.Constant(factor * self.new), node)


def _size_places(call: ast.Call) -> list[tuple[list[ast.expr], int]]:
    """Where the call's sizes stand: (list that holds the expression, index)."""
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if isinstance(argument, ast.Tuple | ast.List):
            return [(argument.elts, index) for index in range(len(argument.elts))]
    numbers = [i for i, item in enumerate(call.args) if isinstance(item, ast.Constant | ast.UnaryOp)]
    return [(call.args, index) for index in numbers]


def _with_rows(
    drawn: list[torch.Tensor], base: Sequence[torch.Tensor], axes: Sequence[RowAxis | None], places: range
) -> list[torch.Tensor]:
    """The drawn inputs with the first rows of the base at these places, and its shared inputs."""
    rows = range(len(places))
    return [
        old if axis is None else axis.replace(new, places, axis.select(old, rows))
        for new, old, axis in zip(drawn, base, axes, strict=True)
    ]


def _same_rows(
    axes: Sequence[RowAxis | None],
    outputs: Sequence[torch.Tensor | None],
    found: Sequence[torch.Tensor | None],
    places: range,
    new: int,
) -> bool:
    rows = range(len(places))
    for axis, output, other in zip(axes, outputs, found, strict=True):
        if axis is None or output is None:
            continue
        if other is None or tuple(other.shape) != axis.resized(output.shape, new):
            return False
        if not bool(same(axis.select(output, rows), axis.select(other, places), rtol=RESIZED_RTOL).all()):
            return False
    return True


def resized_by(graph: Graph, layout: BatchLayout, reading: Reading, num_rows: int) -> Graph:
    """The graph with num_rows rows by a reading that held for another number; its values are not checked."""
    ((_, source),) = sources(graph, layout.inputs, layout.outputs, layout.size, num_rows, [reading])
    return with_rows(graph, layout.inputs, num_rows, source)
