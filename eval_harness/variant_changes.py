"""Changes of a graph's sizes and dtype: what might be tried, and the graph's files after it. variants.py checks.

A change is one size wherever it stands in the arguments, or in a group of places that belong together (the leading
axes, the last axes). Sizes that are written in model.py may follow. No fake runs here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from data.graph import INPUT_META_FILE, META_CLASS_PREFIX, MODEL_FILE, WEIGHT_META_FILE, Graph, TensorSpec
from data.syntax import parse_source

MIN_LITERAL = 7
"""Smaller integers in model.py are more often an axis, a stride or a kernel size than the size that is changed."""
MULTIPLES = (1, 8)
"""Steps in which a size is changed: any first, then eights, which groups, heads and windows often ask for."""

_LEADING_SIZE_CALLS = frozenset({"view", "reshape", "expand"})

MAX_SIZES = 64
"""Sizes that a draw chooses from."""

Literals = Literal["kept", "equal", "leading"]
Places = tuple[tuple[str, int], ...]
"""(argument, axis)."""


@dataclass(frozen=True)
class Change:
    """A size and the places where it stands."""

    size: int
    places: Places
    literals: Literals
    """In model.py: kept; every integer equal to `size` follows; or the first size of view, reshape and expand does."""


def proposals(graph: Graph) -> Iterator[Change]:
    """What might be changed in a graph, unchecked."""
    specs = [spec for spec in graph.specs.values() if spec.shape]
    places: dict[int, list[tuple[str, int]]] = {}
    for spec in specs:
        for axis, size in enumerate(spec.shape):
            places.setdefault(size, []).append((spec.name, axis))
    most = max((len(spec.shape) for spec in specs), default=0)
    for size, all_places in places.items():
        leading = [_leading(specs, size, rank) for rank in ((2, most) if size == 1 else (1,))]
        groups = list(leading)
        if size > 1:
            groups += [tuple(all_places), *(_from_the_end(specs, size, back) for back in (1, 2, 3))]
        for group in dict.fromkeys(group for group in groups if group):
            yield Change(size, group, "kept")
            if size >= MIN_LITERAL:
                yield Change(size, group, "equal")
            if group in leading:
                yield Change(size, group, "leading")


def _leading(specs: Sequence[TensorSpec], size: int, min_rank: int) -> Places:
    return tuple((spec.name, 0) for spec in specs if len(spec.shape) >= min_rank and spec.shape[0] == size)


def _from_the_end(specs: Sequence[TensorSpec], size: int, back: int) -> Places:
    return tuple(
        (spec.name, len(spec.shape) - back) for spec in specs if len(spec.shape) >= back and spec.shape[-back] == size
    )


def needs_growth(graph: Graph) -> bool:
    """Whether sizes may only grow: integers may be indices into what would shrink."""
    return any(
        not spec.dtype.removeprefix("torch.").startswith(("float", "bfloat", "complex", "bool"))
        for spec in graph.specs.values()
    )


def possible_sizes(size: int, step: int, *, grows: bool) -> list[int]:
    """Other sizes in steps of `step`, none a multiple of 16 where the step allows. Never 1, which broadcasts."""
    if step > 1 and size % step:
        return []
    low, high = (size + step, size + 8 * step) if grows else (max(2, size // 4), max(size + size // 2, size + 2))
    first = -(-low // step) * step
    span = (high - first) // step
    count = min(span + 1, MAX_SIZES)
    sizes = [first + step * (i * span // max(count - 1, 1)) for i in range(count)]
    sizes = [value for value in sizes if value != size]
    return [value for value in sizes if value % 16] or sizes


def resized(spec: TensorSpec, change: Change, size: int) -> TensorSpec:
    axes = {axis for name, axis in change.places if name == spec.name}
    if not axes:
        return spec
    shape = tuple(size if axis in axes else old for axis, old in enumerate(spec.shape))
    update: dict[str, Any] = {"shape": shape}
    if spec.data is not None:
        values = _flat(spec.data)
        count = math.prod(shape)
        update["data"] = (values * (count // max(len(values), 1) + 1))[:count]
    return spec.model_copy(update=update)


def _flat(data: Any) -> list[Any]:
    return [item for part in data for item in _flat(part)] if isinstance(data, list | tuple) else [data]


class _Literals(ast.NodeTransformer):
    def __init__(self, change: Change, size: int) -> None:
        self.change, self.size = change, size

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self.change.literals == "equal" and type(node.value) is int and node.value == self.change.size:
            return ast.copy_location(ast.Constant(self.size), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        named = isinstance(node.func, ast.Attribute) and node.func.attr in _LEADING_SIZE_CALLS
        if self.change.literals == "leading" and named and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and type(first.value) is int and first.value == self.change.size:
                node.args[0] = ast.copy_location(ast.Constant(self.size), first)
        return node


def with_literals(source: str, change: Change, size: int) -> str:
    tree = parse_source(source)
    before = ast.dump(tree)
    changed = _Literals(change, size).visit(tree)
    return source if ast.dump(changed) == before else ast.unparse(changed) + "\n"


def rebuilt(graph: Graph, specs: Sequence[TensorSpec], source: str) -> Graph:
    metas = {
        WEIGHT_META_FILE: "\n\n".join(_meta(spec) for spec in specs if spec.role == "weight"),
        INPUT_META_FILE: "\n\n".join(_meta(spec) for spec in specs if spec.role == "input"),
    }
    return Graph(graph.name, dict(graph.files) | metas | {MODEL_FILE: source})


def _meta(spec: TensorSpec) -> str:
    fields: dict[str, object] = {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype}
    fields |= {"device": spec.device}
    fields |= {"mean": spec.mean, "std": spec.std}
    optional = {"data": spec.data, "min_val": spec.min_val, "max_val": spec.max_val}
    fields |= {key: value for key, value in optional.items() if value is not None}
    name = spec.class_name if spec.class_name.isidentifier() else META_CLASS_PREFIX + spec.name
    return f"class {name}:\n" + "".join(f"\t{key} = {_literal(value)}\n" for key, value in fields.items())


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    return repr(value)
