"""The memory layout that eager gives to a result, from PyTorch's rules: views move strides, elementwise operators keep
the order of dimensions of their operands (TensorIterator), everything else the expert knows is contiguous."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from trajectories.policies.expert_ir import BINARY, CASTS, COMPARE, UNARY, Node, OutsideFamiliesError, Ref
from trajectories.policies.expert_shapes import axis_blocks

_ELEMENTWISE = BINARY | COMPARE | UNARY | CASTS | {"where", "masked_fill"}
Strides = tuple[int, ...]


def memory_order(nodes: Sequence[Node], index: int) -> tuple[int, ...]:
    """The axes of a node's value from the slowest to the fastest in memory; in their own order if that is possible."""
    shape = nodes[index].shape or ()
    own = tuple(range(len(shape)))
    if has_order(nodes, index, own):
        return own
    strides = node_strides(nodes, index)
    # the stride of an axis of one element says nothing
    return tuple(sorted(own, key=lambda axis: (shape[axis] != 1, -strides[axis], axis)))


def has_order(nodes: Sequence[Node], index: int, order: Sequence[int]) -> bool:
    """Whether a value lies in memory in this order of axes."""
    strides, shape = node_strides(nodes, index), nodes[index].shape or ()
    kept = [strides[axis] for axis in order if shape[axis] != 1]
    return all(first >= second for first, second in itertools.pairwise(kept))


def is_contiguous(nodes: Sequence[Node], index: int) -> bool:
    """Whether a value is contiguous; axes of one element do not matter."""
    shape = nodes[index].shape or ()
    pairs = zip(node_strides(nodes, index), contiguous(shape), shape, strict=True)
    return all(ours == dense for ours, dense, size in pairs if size != 1)


def contiguous(shape: Sequence[int]) -> Strides:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def node_strides(nodes: Sequence[Node], index: int) -> Strides:
    """Strides of a node's value, in elements."""
    node = nodes[index]
    shape = node.shape or ()
    refs = [arg.node for arg in node.args if isinstance(arg, Ref)]
    if node.op in _ELEMENTWISE and refs:
        return _elementwise(shape, [(nodes[ref].shape or (), node_strides(nodes, ref)) for ref in refs])
    if not refs or node.op in ("input", "contiguous"):
        return contiguous(shape)
    source, strides = nodes[refs[0]].shape or (), node_strides(nodes, refs[0])
    if node.op in ("dropout", "detach"):
        return strides
    return _view(node, shape, source, strides)


def _view(node: Node, shape: tuple[int, ...], source: tuple[int, ...], strides: Strides) -> Strides:
    rank, op = len(source), node.op
    rest = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
    if op == "permute":
        return tuple(strides[axis] for axis in rest)
    if op == "transpose":
        moved = list(strides)
        moved[rest[0]], moved[rest[1]] = moved[rest[1]], moved[rest[0]]
        return tuple(moved)
    if op in ("expand", "expand_as"):
        padded = (0,) * (len(shape) - rank) + strides
        sizes = (1,) * (len(shape) - rank) + source
        return tuple(0 if size != want else stride for size, want, stride in zip(sizes, shape, padded, strict=True))
    if op == "getitem":
        return _sliced(node.args[1], source, strides)
    if op in ("unsqueeze", "squeeze", "view", "reshape", "flatten"):
        return _regrouped(shape, source, strides)
    return contiguous(shape)


def _sliced(index: object, source: tuple[int, ...], strides: Strides) -> Strides:
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = len(source) - sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * missing
    result, axis = [], 0
    for item in items:
        if item is None:
            result.append(1)
            continue
        if isinstance(item, slice):
            result.append(strides[axis] * (item.step or 1))
        axis += 1
    return (*result, *strides[axis:])


def _regrouped(shape: tuple[int, ...], source: tuple[int, ...], strides: Strides) -> Strides:
    """A view that splits axes or leaves them keeps their strides; one that cannot merge axes is a copy."""
    if strides == contiguous(source):
        return contiguous(shape)
    result: list[int] = []
    try:
        blocks = axis_blocks((shape,), (source,))
    except OutsideFamiliesError:
        return contiguous(shape)
    for out_axes, in_axes in blocks:
        kept = [axis for axis in in_axes if source[axis] != 1]
        if len(kept) > 1 and any(strides[a] != strides[b] * source[b] for a, b in itertools.pairwise(kept)):
            return contiguous(shape)
        step = strides[kept[-1]] if kept else 1
        result += [math.prod(shape[axis] for axis in out_axes if axis > own) * step for own in out_axes]
    return tuple(result)


def _elementwise(shape: tuple[int, ...], operands: list[tuple[tuple[int, ...], Strides]]) -> Strides:
    rank = len(shape)
    padded = []
    for own, strides in operands:
        sizes = (1,) * (rank - len(own)) + own
        full = (0,) * (rank - len(own)) + strides
        padded.append(
            tuple(0 if size == 1 and want != 1 else s for size, want, s in zip(sizes, shape, full, strict=True))
        )
    order = list(range(rank - 1, -1, -1))
    for start in range(1, rank):
        at = start
        for before in range(start - 1, -1, -1):
            decision = _should_swap(order[before], order[at], shape, padded)
            if decision > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif decision < 0:
                break
    result, step = [0] * rank, 1
    for axis in order:
        result[axis] = step
        step *= shape[axis]
    return tuple(result)


def _should_swap(first: int, second: int, shape: tuple[int, ...], operands: list[Strides]) -> int:
    for strides in operands:
        if strides[first] == 0 or strides[second] == 0:
            continue
        if strides[first] != strides[second]:
            return -1 if strides[first] < strides[second] else 1
        if shape[first] > shape[second]:
            return 1
    return 0
