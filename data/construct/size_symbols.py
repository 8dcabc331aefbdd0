"""The sizes of a graph that may be changed, and its arguments' shapes when they are. No torch.

A graph that was captured with dynamic shapes names them in input_tensor_constraints.py. Any other gives guesses: the
leading axes of the activations, and each size of theirs. Whether a change works out is tried by resizing.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from data.constraints_file import graph_constraints
from data.graph import Graph, TensorSpec

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SizeSymbol:
    """One size of a graph."""

    name: str
    """"S0" as in the constraints, else "leading_2" or "size_64"."""
    size: int
    places: tuple[tuple[str, int], ...] = ()
    """(argument, axis) of a guess; of a stated symbol, the constraints tell."""


def size_symbols(graph: Graph) -> dict[str, SizeSymbol]:
    """Name -> symbol. Raises MalformedGraphError if the constraints file cannot be read."""
    stated = graph_constraints(graph)
    if stated is not None and any(name in graph.specs for name in stated.dynamic):
        return {name: SizeSymbol(name, size) for name, size in stated.symbols.items()}
    return _guessed(graph)


def changed_shapes(graph: Graph, change: Mapping[str, int]) -> Shapes:
    """Argument -> shape when the symbols of `change` have these sizes. Raises ValueError if they cannot have them."""
    symbols = size_symbols(graph)
    unknown = [name for name in change if name not in symbols]
    if unknown:
        raise ValueError(f"no size {unknown[0]!r}; it has {', '.join(symbols) or 'none'}")
    shapes = {name: spec.shape for name, spec in graph.specs.items()}
    stated = graph_constraints(graph)
    if stated is not None and change.keys() <= stated.symbols.keys():
        if not stated.holds(change):
            raise ValueError(f"relations between its sizes do not hold at {dict(change)}")
        shapes |= {name: stated.shape_of(name, change) for name in stated.dynamic if name in shapes}
    else:
        for name, size in change.items():
            for argument, axis in symbols[name].places:
                shapes[argument] = (*shapes[argument][:axis], size, *shapes[argument][axis + 1 :])
    if any(size < 1 for shape in shapes.values() for size in shape):
        raise ValueError(f"{dict(change)} leaves an argument without elements")
    return shapes


def _guessed(graph: Graph) -> dict[str, SizeSymbol]:
    activations = [spec for spec in graph.specs.values() if not is_parameter(spec)] or list(graph.specs.values())
    leading: dict[int, list[tuple[str, int]]] = defaultdict(list)
    anywhere: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for spec in activations:
        for axis, size in enumerate(spec.shape):
            if axis == 0 and len(spec.shape) > 1:
                leading[size].append((spec.name, axis))
            if size > 1:  # an axis of 1 is there to be broadcast
                anywhere[size].append((spec.name, axis))
    return {
        f"{kind}_{size}": SizeSymbol(f"{kind}_{size}", size, tuple(places))
        for kind, by_size in (("leading", leading), ("size", anywhere))
        for size, places in sorted(by_size.items())
    }


def is_parameter(spec: TensorSpec) -> bool:
    """Whether an argument is a weight or buffer of the model, by the name that Dynamo gave it."""
    name = spec.original_name or spec.name
    return "_parameters_" in name or "_buffers_" in name or "_self_" in name or name.startswith("w_")
