"""Large graphs with smaller sizes, so that tens of runs cost little, and the found axes carried back to the graph.

A size is made smaller wherever it stands in the arguments and in model.py; it counts if the graph still runs. What is
found there is tried again at the graph's own sizes, by few runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from data.graph import Graph, MalformedGraphError, TensorSpec
from eval_harness.batch_invariance.axis_reference import Reference, ReferenceRefused
from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis
from eval_harness.variant_changes import MIN_LITERAL, Change, rebuilt, resized, with_literals

SHRUNK_ABOVE = 1 << 16
"""Elements of all inputs together; a graph below is searched as it is."""
SHRUNK_TO = 1 << 15
"""Shrinking ends here."""
MAX_TRIES = 12
_MIN_SIZE = 16
"""Sizes below are left: batches, heads, kernels."""
_SMALLER = (8, 12, 16, 24, 32)
_SHARES = (8, 4, 2)
Shapes = Sequence[Sequence[int] | None]
"""One a tensor; None for what is no tensor."""


def num_elements(graph: Graph) -> int:
    """Of all inputs together."""
    return sum(spec.num_elements for spec in graph.specs.values())


def shrunk(graph: Graph) -> Graph:
    """A smaller graph of the same operators; the graph itself where it is small or no size can be changed."""
    tries = 0
    failed: set[int] = set()
    while num_elements(graph) > SHRUNK_TO and tries < MAX_TRIES:
        size = _heaviest(graph, failed)
        if size is None:
            break
        failed.add(size)
        for smaller in _attempts(graph, size):
            tries += 1
            if (found := _with_size(graph, size, smaller)) is not None:
                graph = found
                break
            if tries >= MAX_TRIES:
                break
    return graph


def carried(
    layout: BatchLayout, small: Graph, graph: Graph, small_outputs: Shapes, outputs: Shapes
) -> BatchLayout | None:
    """The layout at the graph's own sizes; None where they leave open how many rows there are."""
    pairs = [
        *_sizes(layout.inputs, [small.specs[name].shape for name in small.arguments],
                [graph.specs[name].shape for name in graph.arguments]),
        *_sizes(layout.outputs, small_outputs, outputs),
    ]  # fmt: skip
    counts = {new for axis, _, new in pairs if axis.factor == 1} or {layout.size for _, old, new in pairs if old == new}
    if len(counts) != 1:
        return None
    (num_rows,) = counts
    if any(new % num_rows for _, _, new in pairs):
        return None
    inputs = _at_sizes(layout.inputs, [graph.specs[name].shape for name in graph.arguments], num_rows)
    outputs_at = _at_sizes(layout.outputs, outputs, num_rows)
    return BatchLayout(inputs, outputs_at, num_rows, layout.resizable, layout.ambiguous)


def _sizes(axes: Sequence[RowAxis | None], old: Shapes, new: Shapes) -> Iterator[tuple[RowAxis, int, int]]:
    for axis, before, after in zip(axes, old, new, strict=True):
        if axis is not None and before is not None and after is not None:
            yield axis, before[axis.dim], after[axis.dim]


def _at_sizes(axes: Sequence[RowAxis | None], shapes: Shapes, num_rows: int) -> tuple[RowAxis | None, ...]:
    return tuple(
        None if axis is None or shape is None else RowAxis(axis.dim, shape[axis.dim] // num_rows, axis.order)
        for axis, shape in zip(axes, shapes, strict=True)
    )


def _heaviest(graph: Graph, failed: set[int]) -> int | None:
    """The size whose tensors have the most elements."""
    weight: dict[int, int] = {}
    for spec in graph.specs.values():
        for size in set(spec.shape):
            weight[size] = weight.get(size, 0) + spec.num_elements * spec.shape.count(size)
    left = [size for size in weight if size > _MIN_SIZE and size not in failed]
    return max(left, key=lambda size: weight[size], default=None)


def _attempts(graph: Graph, size: int) -> list[int]:
    """Smaller sizes, none that stands elsewhere: two axes of one size would be taken for one another."""
    present = {size for spec in graph.specs.values() for size in spec.shape}
    sizes = [*_SMALLER, *(size // share for share in _SHARES if size % share == 0)]
    fitting = sorted({value for value in sizes if value <= size // 2 and value not in present})
    return fitting[:1] + fitting[-2:] if len(fitting) > 3 else fitting


def _with_size(graph: Graph, size: int, smaller: int) -> Graph | None:
    places = tuple(
        (spec.name, dim) for spec in graph.specs.values() for dim, old in enumerate(spec.shape) if old == size
    )
    change = Change(size, places, "equal" if size >= MIN_LITERAL else "kept")
    specs: list[TensorSpec] = [resized(spec, change, smaller) for spec in graph.specs.values()]
    try:
        found = rebuilt(graph, specs, with_literals(graph.model_source, change, smaller))
        reference = Reference.load(found)
        reference.run([x.clone() for x in reference.draw(found, 0)])
    except (ReferenceRefused, MalformedGraphError):
        return None
    return found
