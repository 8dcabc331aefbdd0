"""Shape arithmetic by PyTorch's rules: promotion, broadcasting, views, and how views regroup dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trajectories.policies.expert_ir import FLOATS, Dtype, Node, OutsideFamiliesError, Ref, argument

_FLOAT_RANK = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
_INT_RANK = {"bool": 0, "uint8": 1, "int8": 1, "int16": 2, "int32": 3, "int64": 4}
Shapes = tuple[tuple[int, ...], ...]
"""One shape a graph of the group."""


def promote(nodes: list[Node], operands: list[Any]) -> str | None:
    """The dtype of an elementwise result: category first, then tensors with dimensions before those without."""
    best: dict[int, str] = {}
    category = -1
    for operand in operands:
        if isinstance(operand, Ref):
            node = nodes[operand.node]
            if node.dtype is None or node.shape is None:
                return None
            dtype, priority = node.dtype, 2 if node.shape else 1
        else:
            dtype, priority = {bool: "bool", int: "int64"}.get(type(operand), "float32"), 0
        kind = 2 if dtype in FLOATS else 0 if dtype == "bool" else 1
        if kind > category:
            category, best = kind, {priority: dtype}
        elif kind == category:
            best[priority] = join(best[priority], dtype) if priority in best else dtype
    return best[max(best)] if best else None


def join(first: str, second: str) -> str:
    if {first, second} == {"float16", "bfloat16"}:
        return "float32"
    rank = _FLOAT_RANK if first in _FLOAT_RANK else _INT_RANK
    return max(first, second, key=lambda name: rank[name])


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    width = max(map(len, shapes))
    padded = [(1,) * (width - len(shape)) + shape for shape in shapes]
    result = tuple(next((d for d in dims if d != 1), 1) for dims in zip(*padded, strict=True))
    if any(d not in (1, r) for shape in padded for d, r in zip(shape, result, strict=True)):
        raise OutsideFamiliesError(f"shapes {shapes} do not broadcast")
    return result


def is_integer(dtype: str | None) -> bool:
    """Whether it is bool or an integer type."""
    return dtype in _INT_RANK


def reduce_axes(node: Node, rank: int) -> tuple[int, ...]:
    """The axes that a reduction runs over; norms have their order in between."""
    position = 2 if node.op in ("linalg_vector_norm", "norm") else 1
    axes = argument(node, position, "dim", None)
    axes = argument(node, position, "axis", axes) if axes is None else axes
    if axes is None or axes == ():
        return tuple(range(rank))
    return tuple(sorted(axis % rank for axis in (axes if isinstance(axes, tuple) else (axes,))))


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    return tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdim or i not in axes)


def view_shape(node: Node, nodes: list[Node]) -> tuple[int, ...] | None:
    """The shape after a view of the first operand; None where the expert does not know the view."""
    source, op = nodes[node.args[0].node].shape or (), node.op
    rest = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
    rank = len(source)
    if any(isinstance(item, Ref | Dtype) for item in rest) and op not in ("expand_as",):
        return None
    if op in ("view", "reshape"):
        sizes = list(node.kwargs.get("shape", rest))
        if -1 in sizes:
            known = math.prod(size for size in sizes if size != -1)
            sizes[sizes.index(-1)] = math.prod(source) // max(known, 1)
        return tuple(sizes)
    if op == "permute":
        return tuple(source[axis] for axis in rest)
    if op == "transpose":
        order = list(source)
        order[rest[0]], order[rest[1]] = order[rest[1]], order[rest[0]]
        return tuple(order)
    if op == "unsqueeze":
        axis = argument(node, 1, "dim") % (rank + 1)
        return (*source[:axis], 1, *source[axis:])
    if op == "squeeze":
        rest = (node.kwargs["dim"],) if "dim" in node.kwargs else rest
        if len(rest) != 1:
            return None
        if source[rest[0]] != 1:
            return source
        return tuple(d for i, d in enumerate(source) if i != rest[0] % rank)
    if op == "select":
        axis = argument(node, 1, "dim") % rank
        return (*source[:axis], *source[axis + 1 :])
    if op == "narrow":
        axis, length = argument(node, 1, "dim") % rank, argument(node, 3, "length")
        return (*source[:axis], length, *source[axis + 1 :])
    if op == "expand":
        sizes = list(node.kwargs.get("size", rest))
        offset = len(sizes) - rank
        return tuple(source[i - offset] if size == -1 else size for i, size in enumerate(sizes))
    if op == "expand_as":
        return nodes[node.args[1].node].shape
    if op == "flatten":
        start, end = argument(node, 1, "start_dim", 0) % rank, argument(node, 2, "end_dim", -1) % rank
        return (*source[:start], math.prod(source[start : end + 1]), *source[end + 1 :])
    return _getitem_shape(source, node.args[1])


def _getitem_shape(source: tuple[int, ...], index: Any) -> tuple[int, ...] | None:
    items = list(index) if isinstance(index, tuple) else [index]
    if any(not (item is None or item is Ellipsis or type(item) is int or isinstance(item, slice)) for item in items):
        return None
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = len(source) - sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * missing
    shape, axis = [], 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if isinstance(item, slice):
            shape.append(len(range(*item.indices(source[axis]))))
        axis += 1
    return (*shape, *source[axis:])


def axis_blocks(shapes: Shapes, source: Shapes) -> list[tuple[list[int], list[int]]]:
    """Pairs of runs of axes (result, source) that hold the same elements in every graph."""
    blocks, a, b = [], 0, 0
    rank_a, rank_b = len(shapes[0]), len(source[0])
    while a < rank_a or b < rank_b:
        first, second = [a] if a < rank_a else [], [b] if b < rank_b else []
        while _products(shapes, first) != _products(source, second):
            grow_first = any(x < y for x, y in zip(_products(shapes, first), _products(source, second), strict=True))
            axes, rank = (first, rank_a) if grow_first else (second, rank_b)
            following = (axes[-1] if axes else (a if grow_first else b) - 1) + 1
            if following >= rank:
                raise OutsideFamiliesError("a view mixes dimensions differently from graph to graph")
            axes.append(following)
        a, b = a + len(first), b + len(second)
        blocks.append((first, second))
    return blocks


def _products(shapes: Shapes, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis] for axis in axes) for shape in shapes)
