"""Index arithmetic of the expert's kernels: from an index of a result to the index of its operand, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_shapes import Shapes, axis_blocks

Index = tuple[str, ...]
Dim = Callable[[tuple[int, ...], Shapes, int], str]
"""Sizes of one dimension over the graphs, and where it stands (shapes, axis) -> text of the size at run time."""


def sizes(shapes: Shapes, axis: int) -> tuple[int, ...]:
    return tuple(shape[axis] for shape in shapes)


def broadcast_index(arg: Expr, shapes: Shapes, index: Index, dim: Dim) -> Index:
    """Index of an operand that is broadcast to the result's shapes."""
    offset = len(shapes[0]) - arg.rank
    result = []
    for axis in range(arg.rank):
        have, want, text = sizes(arg.shapes, axis), sizes(shapes, axis + offset), index[axis + offset]
        if have == want:
            result.append(text)
        elif set(have) == {1}:
            result.append("0")
        else:  # in some graphs only
            result.append(f"({text} % {dim(have, arg.shapes, axis)})")
    return tuple(result)


def source_index(expr: Expr, index: Index, dim: Dim) -> Index:
    """Index into the operand of a remap expression."""
    source, data = expr.args[0], expr.data
    if expr.fn == "permute" or expr.fn == "transpose":
        return tuple(index[data.index(axis)] for axis in range(source.rank))
    if expr.fn == "unsqueeze":
        return tuple(text for axis, text in enumerate(index) if axis not in data)
    if expr.fn == "squeeze":
        return (*index[: data[0]], "0", *index[data[0] :])
    if expr.fn in ("expand", "expand_as"):
        return broadcast_index(source, expr.shapes, index, dim)
    if expr.fn == "roll":
        return tuple(
            _rolled(text, data[axis], dim(sizes(expr.shapes, axis), source.shapes, axis))
            if axis in data and text != "0"
            else text
            for axis, text in enumerate(index)
        )
    if expr.fn == "repeat":
        offset = len(index) - source.rank
        return tuple(
            _repeated(index[offset + axis], expr.shapes, source.shapes, axis, dim) for axis in range(source.rank)
        )
    if expr.fn == "repeat_interleave":
        axis, count = data
        return (*index[:axis], f"({index[axis]} // {count})", *index[axis + 1 :])
    if expr.fn == "getitem":
        return _slice_index(data, index, source.shapes, dim)
    return _reshape_index(expr.shapes, source.shapes, index, dim)


def _rolled(text: str, shift: str, size: str) -> str:
    """Where the element of a rolled axis came from; the size is added because Triton's % keeps the sign."""
    back = f"+ {shift[1:]}" if shift.startswith("-") else f"- {shift}"
    return f"({text} {back} + {size}) % {size}"


def _repeated(text: str, shapes: Shapes, source: Shapes, axis: int, dim: Dim) -> str:
    have = sizes(source, axis)
    if set(have) == {1}:
        return "0"
    if have == sizes(shapes, axis + len(shapes[0]) - len(source[0])):
        return text
    return f"({text} % {dim(have, source, axis)})"


def _slice_index(items: Sequence[Any], index: Index, source: Shapes, dim: Dim) -> Index:
    """items: None for a new axis, ("int", text) for a chosen element, ("slice", start, step)."""
    result: list[str] = []
    rest = list(index)
    for item in items:
        if item is None:
            rest.pop(0)
            continue
        start = item[1]
        if start.startswith("-"):  # from the end
            axis = len(result)
            start = f"{dim(sizes(source, axis), source, axis)} - {start[1:]}"
        if item[0] == "int":
            result.append(start if start.isidentifier() or start.isdigit() else f"({start})")
        else:
            text = rest.pop(0)
            text = text if item[2] == 1 else f"{text} * {item[2]}"
            result.append(text if start == "0" else f"({text} + {start})")
    return (*result, *rest)


def _reshape_index(shapes: Shapes, source: Shapes, index: Index, dim: Dim) -> Index:
    """view/reshape/flatten: blocks of dimensions with equal products are handled on their own."""
    result: list[str] = []
    for out_axes, in_axes in axis_blocks(shapes, source):
        if len(out_axes) == len(in_axes) == 1:
            result.append(index[out_axes[0]])
            continue
        flat = "0"
        for axis in out_axes:
            flat = (
                index[axis] if flat == "0" else f"({flat} * {dim(sizes(shapes, axis), shapes, axis)} + {index[axis]})"
            )
        inner: list[str] = []
        for axis in reversed(in_axes):
            if axis == in_axes[0]:
                inner.append(flat)
            elif set(sizes(source, axis)) == {1}:
                inner.append("0")
            else:
                size = dim(sizes(source, axis), source, axis)
                inner.append(f"({flat} % {size})")
                flat = f"({flat} // {size})"
        result += reversed(inner)
    return tuple(result)
