"""PyTorch's rules of shapes and dtypes, as far as the expert knows them.

What it does not know keeps the shape None, and everything that needs such a node stays outside the expert's passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trajectories.policies.expert_ir import (
    BINARY,
    CASTS,
    COMPARE,
    FLOATS,
    REDUCE,
    ROWWISE,
    SAME,
    UNARY,
    VIEWS,
    Dtype,
    Node,
    OutsideFamiliesError,
    Ref,
    argument,
)

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


def infer(node: Node, nodes: list[Node]) -> None:
    """Set shape and dtype of a node from its operands; leave None where the operation is not known."""
    refs = [nodes[arg.node] for arg in node.args if isinstance(arg, Ref)]
    if any(ref.shape is None for ref in refs):
        return
    op, first = node.op, refs[0] if refs else None
    if op in BINARY or op in COMPARE:
        node.shape = broadcast(*(ref.shape for ref in refs if ref.shape is not None))
        node.dtype = "bool" if op in COMPARE else promote(nodes, list(node.args))
        if op == "div" and node.dtype not in FLOATS:
            node.dtype = "float32"
        if node.kwargs:
            node.shape = None  # alpha=, rounding_mode=: not among the families
    elif op == "where" and len(node.args) == 3:
        node.shape = broadcast(*(ref.shape for ref in refs if ref.shape is not None))
        node.dtype = promote(nodes, list(node.args[1:]))
    elif op == "masked_fill" and first is not None:
        node.shape, node.dtype = broadcast(first.shape or (), refs[1].shape or ()), first.dtype
    elif op == "cat":
        _infer_cat(node, nodes)
    elif first is None:
        return
    elif op in UNARY or op in ROWWISE:
        node.shape, node.dtype = first.shape, first.dtype
        wanted = node.kwargs.get("dtype")
        if op in ("softmax", "log_softmax") and isinstance(wanted, Dtype):
            node.dtype = wanted.name
    elif op in SAME:
        node.shape, node.dtype = first.shape, first.dtype
        if op == "dropout" and (node.kwargs.get("training", argument(node, 2, "training", True)) is not False):
            node.shape = None
    elif op in CASTS:
        node.shape = first.shape
        node.dtype = _cast_dtype(node, refs)
    elif op in VIEWS:
        node.dtype = first.dtype
        node.shape = view_shape(node, nodes)
    elif op == "roll":
        node.shape, node.dtype = first.shape, first.dtype
    elif op in REDUCE:
        _infer_reduce(node, first)
    elif op == "embedding" and len(refs) == 2:
        node.shape, node.dtype = (*(refs[0].shape or ()), (refs[1].shape or (0,))[-1]), refs[1].dtype
    else:
        _infer_primitive(node, refs)


def _cast_dtype(node: Node, refs: list[Node]) -> str | None:
    fixed = {
        "float": "float32",
        "half": "float16",
        "bfloat16": "bfloat16",
        "int": "int32",
        "long": "int64",
        "bool": "bool",
    }
    if node.op in fixed:
        return fixed[node.op]
    if len(refs) == 2:
        return refs[1].dtype
    for value in (*node.args[1:], *node.kwargs.values()):
        if isinstance(value, Dtype) and value.name != "device":
            return value.name
    return refs[0].dtype


def _infer_cat(node: Node, nodes: list[Node]) -> None:
    parts = [nodes[ref.node] for ref in node.args[0]]
    if any(part.shape is None for part in parts):
        return
    shapes = [list(part.shape or ()) for part in parts]
    axis = argument(node, 1, "dim", 0) % len(shapes[0])
    shapes[0][axis] = sum(shape[axis] for shape in shapes)
    node.shape, node.dtype = tuple(shapes[0]), promote(nodes, list(node.args[0]))


def reduce_axes(node: Node, rank: int) -> tuple[int, ...]:
    axes = argument(node, 1, "dim", None)
    axes = argument(node, 1, "axis", axes) if axes is None else axes
    if axes is None or axes == ():
        return tuple(range(rank))
    return tuple(sorted(axis % rank for axis in (axes if isinstance(axes, tuple) else (axes,))))


def _infer_reduce(node: Node, first: Node) -> None:
    shape = first.shape or ()
    axes = reduce_axes(node, len(shape))
    keep = argument(node, 2, "keepdim", False)
    node.shape = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
    wanted = node.kwargs.get("dtype")
    node.dtype = wanted.name if isinstance(wanted, Dtype) else first.dtype
    if node.op == "sum" and node.dtype in _INT_RANK:
        node.dtype = "int64"
    if node.op == "var":
        node.shape = None


def _infer_primitive(node: Node, refs: list[Node]) -> None:
    """Vendor primitives: only their shapes matter, for what follows them."""
    shapes = [ref.shape or () for ref in refs]
    node.dtype = refs[0].dtype
    if node.op == "linear" and len(shapes) >= 2:
        node.shape = (*shapes[0][:-1], shapes[1][0])
    elif node.op in ("matmul", "bmm") and len(shapes) == 2 and min(map(len, shapes)) >= 2:
        node.shape = (*broadcast(shapes[0][:-2], shapes[1][:-2]), shapes[0][-2], shapes[1][-1])
    elif node.op == "attention":
        node.shape = (*shapes[0][:-1], shapes[2][-1])
    elif node.op == "conv2d" and len(shapes) >= 2 and len(shapes[0]) == 4:
        stride, padding, dilation = (
            argument(node, position, name, default)
            for position, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1))
        )
        if padding == "same":
            node.shape = (shapes[0][0], shapes[1][0], *shapes[0][2:])
        elif not isinstance(padding, str):
            spatial = []
            for axis in (0, 1):
                s, p, d = (v[axis % len(v)] if isinstance(v, tuple) else v for v in (stride, padding, dilation))
                spatial.append((shapes[0][2 + axis] + 2 * p - d * (shapes[1][2 + axis] - 1) - 1) // s + 1)
            node.shape = (shapes[0][0], shapes[1][0], *spatial)


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
        if len(rest) != 1 or source[rest[0]] != 1:
            return None
        return tuple(d for i, d in enumerate(source) if i != rest[0] % rank)
    if op == "expand":
        sizes = list(rest)
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
