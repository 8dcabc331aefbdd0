"""Shapes and dtypes of what moves elements: joins, constants, gathers, repeats, padding, pooling windows."""

from __future__ import annotations

import math
from typing import Any

from trajectories.policies.expert_ir import Dtype, Node, OutsideFamiliesError, Ref, argument
from trajectories.policies.expert_shapes import promote


def infer_joined(node: Node, nodes: list[Node]) -> None:
    if not isinstance(node.args[0], tuple) or not all(isinstance(ref, Ref) for ref in node.args[0]):
        return
    parts = [nodes[ref.node] for ref in node.args[0]]
    if any(part.shape is None for part in parts):
        return
    shapes = [list(part.shape or ()) for part in parts]
    node.dtype = promote(nodes, list(node.args[0]))
    if node.op == "stack":
        axis = argument(node, 1, "dim", 0) % (len(shapes[0]) + 1)
        node.shape = (*shapes[0][:axis], len(shapes), *shapes[0][axis:])
        return
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        return  # torch.cat ignores empty tensors of one dimension
    axis = joined_axis(node, len(shapes[0]))
    shapes[0][axis] = sum(shape[axis] for shape in shapes)
    node.shape = tuple(shapes[0])


def joined_axis(node: Node, rank: int) -> int:
    """The axis of cat, which calls it dim or axis."""
    axis: int = argument(node, 1, "dim", argument(node, 1, "axis", 0))
    return axis % rank


def infer_factory(node: Node) -> None:
    wanted = node.kwargs.get("dtype")
    known = wanted.name if isinstance(wanted, Dtype) else None
    if any(isinstance(value, Ref) for value in node.args):
        return
    if node.op == "arange":
        start, stop, step = arange_bounds(node)
        is_float = any(isinstance(value, float) for value in (start, stop, step))
        node.shape, node.dtype = (
            (max(0, math.ceil((stop - start) / step)),),
            known or ("float32" if is_float else "int64"),
        )
        return
    sizes = argument(node, 0, "size")
    if not isinstance(sizes, tuple):
        sizes = tuple(value for value in node.args if isinstance(value, int))
    if node.op == "full":
        value = argument(node, 1, "fill_value")
        sizes = node.args[0] if isinstance(node.args[0], tuple) else None
        known = known or {bool: "bool", int: "int64"}.get(type(value), "float32")
    node.shape, node.dtype = sizes, known or "float32"


def arange_bounds(node: Node) -> tuple[Any, Any, Any]:
    """Start, stop and step of arange(stop), arange(start, stop), arange(start, stop, step)."""
    given = [value for value in node.args if isinstance(value, int | float)]
    if len(given) == 1:
        given = [0, given[0]]
    start = node.kwargs.get("start", given[0] if given else 0)
    stop = node.kwargs.get("end", given[1] if len(given) > 1 else None)
    if stop is None:
        raise OutsideFamiliesError("an arange without a constant end is outside my families")
    return start, stop, node.kwargs.get("step", given[2] if len(given) > 2 else 1)


def infer_gather(node: Node, refs: list[Node], nodes: list[Node]) -> None:
    if node.op == "embedding":
        if len(refs) == 2 and argument(node, 3, "max_norm") is None:
            node.shape, node.dtype = (*(refs[0].shape or ()), (refs[1].shape or (0,))[-1]), refs[1].dtype
        return
    index = argument(node, 2, "index")
    shape = refs[0].shape or ()
    if not isinstance(index, Ref) or (chosen := nodes[index.node]).shape is None:
        return
    axis = argument(node, 1, "dim") % len(shape)
    node.dtype = refs[0].dtype
    if node.op == "gather":
        node.shape = chosen.shape
    elif len(chosen.shape) == 1:
        node.shape = (*shape[:axis], chosen.shape[0], *shape[axis + 1 :])


def infer_enlarged(node: Node, first: Node) -> None:
    shape = first.shape or ()
    if node.op == "pad":
        widths, mode = argument(node, 1, "pad"), argument(node, 2, "mode", "constant")
        if mode != "constant" or not isinstance(widths, tuple) or any(width < 0 for width in widths):
            return
        sizes = list(shape)
        for position in range(len(widths) // 2):
            sizes[-1 - position] += widths[2 * position] + widths[2 * position + 1]
        node.shape, node.dtype = tuple(sizes), first.dtype
        return
    if node.op == "repeat_interleave":
        count, dim = argument(node, 1, "repeats"), argument(node, 2, "dim")
        if isinstance(count, int) and isinstance(dim, int):
            axis = dim % len(shape)
            node.shape = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
            node.dtype = first.dtype
        return
    counts = repeat_counts(node)
    if not all(isinstance(count, int) for count in counts) or len(counts) < len(shape):
        return
    padded = (1,) * (len(counts) - len(shape)) + shape
    node.shape, node.dtype = tuple(d * c for d, c in zip(padded, counts, strict=True)), first.dtype


def repeat_counts(node: Node) -> tuple[Any, ...]:
    rest = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
    return tuple(node.kwargs.get("repeats", rest))


def infer_pool(node: Node, shape: tuple[int, ...], dtype: str | None) -> None:
    if len(shape) < 3:
        return
    if node.op == "adaptive_avg_pool2d":
        wanted = argument(node, 1, "output_size")
        wanted = wanted if isinstance(wanted, tuple) else (wanted, wanted)
        wanted = tuple(size if w is None else w for w, size in zip(wanted, shape[-2:], strict=True))
        if all(size % w == 0 for w, size in zip(wanted, shape[-2:], strict=True)):
            node.shape, node.dtype = (*shape[:-2], *wanted), dtype
        return
    window = pool_window(node)
    spatial = []
    for axis in (0, 1):
        kernel, stride, padding, dilation = (values[axis] for values in window[:4])
        reach = shape[axis - 2] + 2 * padding - dilation * (kernel - 1) - 1
        size = (reach + (stride - 1 if window[4] else 0)) // stride + 1
        if window[4] and (size - 1) * stride >= shape[axis - 2] + padding:
            size -= 1  # a window that begins in the padding on the right is left out
        spatial.append(size)
    node.shape, node.dtype = (*shape[:-2], *spatial), dtype


def pool_window(node: Node) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int], bool]:
    """Kernel, stride, padding, dilation and ceil_mode of a two-dimensional pooling."""
    is_max = node.op == "max_pool2d"

    def pair(position: int, name: str, default: Any) -> tuple[int, int]:
        value = argument(node, position, name, default)
        value = default if value is None or value == () else value
        return (value[0], value[-1]) if isinstance(value, tuple) else (value, value)

    kernel = pair(1, "kernel_size", None)
    stride = pair(2, "stride", kernel)
    dilation = pair(4, "dilation", 1) if is_max else (1, 1)
    return kernel, stride, pair(3, "padding", 0), dilation, bool(argument(node, 5 if is_max else 4, "ceil_mode", False))
