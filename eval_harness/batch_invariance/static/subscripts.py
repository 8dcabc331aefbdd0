"""Indexing and slicing of shapes, containers, tensors and blocks."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.buffers import contents, note_load
from eval_harness.batch_invariance.static.functions import choose_among
from eval_harness.batch_invariance.static.iteration import FROM_ZERO
from eval_harness.batch_invariance.static.merging import element
from eval_harness.batch_invariance.static.routing import is_capacity, report_drop
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import (
    ANY,
    BLOCK,
    EXTENT,
    FUNC,
    MAP,
    NC,
    NUM,
    PTR,
    SEQ,
    SHAPE,
    STRUCT,
    TENSOR,
    Val,
    const,
    num,
    seq,
    stronger,
    struct,
    unknown,
    with_dep,
)


def subscript(run: Run, owner: Val, node: ast.Subscript, frame: Frame) -> Val:
    """owner[index]."""
    kind = owner.kind
    if kind == SHAPE:
        return _of_shape(run, owner, node, frame)
    if kind in (BLOCK, PTR):
        return _of_block(run, owner, node, frame)
    if kind == TENSOR:
        return _of_tensor(run, owner, node, frame)
    if kind == MAP:
        return _of_map(owner, run.eval(node.slice, frame))
    if kind == SEQ:
        return _of_seq(run, owner, node.slice, frame)
    if kind == FUNC:
        launch = owner.copy()
        launch.kind = "launch"
        launch.dims = (run.eval(node.slice, frame),)  # the grid
        return launch
    if frame.kernel is not None and kind == NUM and owner.dims is None and not isinstance(node.slice, ast.Slice):
        return _of_block(run, owner, node, frame)
    index = unknown() if isinstance(node.slice, ast.Slice) else run.eval(node.slice, frame)
    if kind == ANY and owner.name and _indexes_rows(node.slice):
        return _of_tensor(run, sources.new_tensor(owner.name), node, frame)
    return unknown(stronger(owner.dep, struct(index.dep)))


def _indexes_rows(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice | ast.Tuple | ast.UnaryOp)


def _of_shape(run: Run, owner: Val, node: ast.Subscript, frame: Frame) -> Val:
    tensor, start, _ = owner.data
    index = node.slice
    if isinstance(index, ast.Slice):
        lower = run.eval(index.lower, frame).const if index.lower is not None else 0
        upper = run.eval(index.upper, frame).const if index.upper is not None else None
        lower = lower if isinstance(lower, int) else 0
        if lower < 0:
            return seq([num(elem="i") for _ in range(-lower)])  # the last dimensions
        return Val(SHAPE, data=(tensor, start + lower, upper if isinstance(upper, int) else None))
    place = run.eval(index, frame)
    position = place.const
    if not isinstance(position, int) or isinstance(position, bool):
        if place.name == FROM_ZERO and tensor.batch == 0 and start == 0:
            return sources.rows(frame, node.lineno)  # for i in range(dim): outer *= x.shape[i]
        return num(elem="i")
    return sources.size_at(frame, tensor, position + start if position >= 0 else position, node.lineno)


def _of_map(owner: Val, key: Val) -> Val:
    if key.const is not NC:
        value = owner.data.get(key.const) if isinstance(key.const, int | float | str | bool | None) else None
        if value is not None:
            return with_dep(value, owner.dep) if owner.dep is not None and value.kind == NUM else value
        if key.dep is None and owner.data and not any(isinstance(name, tuple) for name in owner.data):
            return unknown(owner.dep)
    elif key.kind == SEQ and key.data is not None and all(item.const is not NC for item in key.data):
        value = owner.data.get(tuple(item.const for item in key.data))
        if value is not None:
            return value
    from_key = key
    if key.kind == SEQ:
        from_key = element(key)
    return choose_among(list(owner.data.values()), from_key, owner)


def _of_seq(run: Run, owner: Val, index: ast.expr, frame: Frame) -> Val:
    if isinstance(index, ast.Slice):
        bounds = [
            run.eval(part, frame) if part is not None else None for part in (index.lower, index.upper, index.step)
        ]
        if owner.data is not None and all(bound is None or isinstance(bound.const, int | None) for bound in bounds):
            lower, upper, step = (None if bound is None else bound.const for bound in bounds)
            if step != 0:
                return seq(owner.data[lower:upper:step], owner.dep)
        dep = owner.dep
        for bound in bounds:
            dep = stronger(dep, bound.dep if bound is not None else None)
        if not owner.data and not owner.dims:
            return owner
        value = seq(None, dep, element(owner))
        value.name = owner.name  # most rows of a list with one entry a row
        return value
    key = run.eval(index, frame)
    if owner.data is not None:
        if isinstance(key.const, int) and -len(owner.data) <= key.const < len(owner.data):
            return with_dep(owner.data[key.const], owner.dep) if owner.dep is not None else owner.data[key.const]
        return choose_among(owner.data, key, owner)
    return with_dep(element(owner), stronger(struct(key.dep), owner.dep))


def _of_tensor(run: Run, owner: Val, node: ast.Subscript, frame: Frame) -> Val:
    """Slices keep a dimension (a slice whose length follows the batch has such a size), numbers drop it."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    dims: list[Val] | None = [] if owner.dims is not None else None
    batch = owner.batch
    position = 0
    dep = owner.dep
    extra: dict[int, Val] = {}
    out = 0
    scalar_index: Val | None = None
    for part in parts:
        if isinstance(part, ast.Constant) and part.value is Ellipsis:
            if owner.dims is None:
                position, out = 99, out + 99
            else:
                skipped = len(owner.dims) - sum(not _is_new(other) for other in parts) + 1
                if dims is not None:
                    dims.extend(owner.dims[position : position + skipped])
                position, out = position + skipped, out + skipped
            continue
        if _is_new(part):
            if dims is not None:
                dims.append(const(1))
            if batch is not None and position <= batch:
                batch += 1
            out += 1
            continue
        size = owner.dims[position] if owner.dims is not None and position < len(owner.dims) else None
        if isinstance(part, ast.Slice):
            length = _slice_length(run, part, size, frame, is_rows=position == owner.batch)
            if length is not None and length.dep is not None:
                extra[out] = length
            if dims is not None:
                dims.append(length if length is not None else size or num(elem="i"))
            out += 1
        else:
            index = run.eval(part, frame)
            scalar_index = index
            if index.kind in (TENSOR, SEQ):  # a gather keeps a dimension
                if dims is not None:
                    dims.append(index.dims[0] if index.kind == TENSOR and index.dims else num(elem="i"))
                out += 1
                dep = stronger(dep, index.dep)
                if index.elem == "b":
                    dims = None
            elif batch is not None and position < 99:
                if position == owner.batch:
                    batch = None
                elif position < owner.batch:  # type: ignore[operator]
                    batch -= 1
        position += 1
    if dims is not None and owner.dims is not None:
        dims.extend(owner.dims[position:])
    drops_rows = scalar_index is not None and batch is None and owner.batch is not None and len(parts) == 1
    if drops_rows and owner.elem == "i" and scalar_index is not None and scalar_index.const == -1:
        return sources.over_rows(frame, owner, "last", node.lineno)  # indptr[-1]: the total
    value = owner.copy()
    value.dims = tuple(dims) if dims is not None else None
    value.batch, value.dep, value.const = batch, dep, NC
    if dims is None and extra:
        value.dims = tuple(extra.get(place, num(elem="i")) for place in range(max(max(extra) + 1, 2)))
        if batch is not None and batch < len(value.dims) and value.dims[batch].dep is None:
            filled = list(value.dims)
            filled[batch] = sources.rows(frame, node.lineno)
            value.dims = tuple(filled)
    return value


def _is_new(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value is None


def _slice_length(run: Run, part: ast.Slice, size: Val | None, frame: Frame, *, is_rows: bool) -> Val | None:
    """The length that a slice leaves, where it follows the batch; None: as long as before, or not known."""
    dep = None
    for bound in (part.lower, part.upper, part.step):
        if bound is not None:
            dep = stronger(dep, run.eval(bound, frame).dep)
    if dep is None:
        return None if part.lower is None and part.upper is None else num(elem="i") if size is not None else None
    if part.upper is not None and is_capacity(run, dep):
        report_drop(run, frame, part.upper, dep)
    if is_rows or (size is not None and size.dep is not None and size.dep.mode != STRUCT):
        return size
    return num(dep.into(STRUCT) if dep.mode != EXTENT else dep, "i")


def _of_block(run: Run, owner: Val, node: ast.Subscript, frame: Frame) -> Val:
    """offs[:, None] in a kernel; pointer[i] in CUDA, which loads."""
    if frame.module.is_cuda:
        index = run.eval(node.slice, frame)
        note_load(run, owner)
        return loaded(owner, index)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if owner.dims is None:
        return owner
    dims: list[Val] = []
    remaining = list(owner.dims)
    for part in parts:
        if _is_new(part):
            dims.append(const(1))
        elif isinstance(part, ast.Slice):
            dims.append(remaining.pop(0) if remaining else const(1))
        elif remaining:
            remaining.pop(0)
    value = owner.copy()
    value.dims = (*dims, *remaining)
    if value.kind == NUM:
        value.kind = BLOCK
    return value


def loaded(owner: Val, index: Val) -> Val:
    """What p[i] reads in CUDA: data, or an integer that the row owns."""
    pointed = owner.data
    elem = pointed.elem if isinstance(pointed, Val) else owner.elem
    value = Val(NUM, owner.dep, elem=elem or "f")
    if isinstance(pointed, Val):
        value.dep = stronger(contents(owner), value.dep)
        if elem == "i":
            value.name = "<own>"
    return value
