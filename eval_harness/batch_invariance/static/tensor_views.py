"""Views of tensors: where the sizes, and with them the batch, go."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.functions import strongest
from eval_harness.batch_invariance.static.merging import element
from eval_harness.batch_invariance.static.sources import rows
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import (
    NUM,
    ROWS,
    SEQ,
    SHAPE,
    STRUCT,
    TENSOR,
    Dep,
    Val,
    const,
    num,
    seq,
    stronger,
)
from eval_harness.batch_invariance.static.words import words

VIEWS = words(
    "view reshape flatten unflatten permute transpose swapaxes movedim t squeeze unsqueeze expand expand_as repeat"
    " chunk split tensor_split split_with_sizes unbind narrow select index_select view_as reshape_as"
    " broadcast_to"
)
Sizes = tuple[Val, ...]


def sizes_from(items: list[Val], source: Val | None) -> tuple[Sizes | None, int | None]:
    """(sizes, batch dimension) that shape arguments give; -1 takes what the others leave of `source`."""
    if len(items) == 1 and items[0].kind == SEQ:
        if items[0].data is None:
            return None, None
        items = items[0].data
    sizes: list[Val] = []
    for position, item in enumerate(items):
        if item.kind == SHAPE:
            tensor, start, stop = item.data
            if tensor.dims is None:
                batch = tensor.batch if start == 0 and position == 0 else None
                return None, batch
            sizes.extend(tensor.dims[start:stop])
        elif item.kind == SEQ and item.data is not None:
            sizes.extend(item.data)
        else:
            sizes.append(item if item.kind == NUM else num(item.dep, "i"))
    rest = next((position for position, size in enumerate(sizes) if size.const == -1), None)
    if rest is not None:
        sizes[rest] = _left_over(sizes, source)
    batch = next((at for at, size in enumerate(sizes) if size.dep is not None and size.dep.mode == ROWS), None)
    return tuple(sizes), batch


def _left_over(sizes: list[Val], source: Val | None) -> Val:
    dep: Dep | None = None
    has_rows = False
    for size in sizes:
        if size.dep is not None:
            has_rows = has_rows or size.dep.mode == ROWS
            if size.dep.mode != ROWS:
                dep = stronger(dep, size.dep)
    if not has_rows and source is not None:
        row_dep = _rows_of(source)
        if row_dep is not None:
            return num(row_dep, "i")
    return num(dep.into(STRUCT, part=True) if dep is not None else None, "i")


def _rows_of(tensor: Val) -> Dep | None:
    for size in tensor.dims or ():
        if size.dep is not None and size.dep.mode == ROWS:
            return size.dep
    return None


def view(run: Run, frame: Frame, name: str, x: Val, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """x.name(args) for a view, or a joining of tensors."""
    value = x.copy()
    if x.dims is None and x.batch is not None and name in ("view", "reshape"):
        x = x.copy()
        x.dims = (rows(frame, node.lineno),)  # enough to tell what -1 takes
    if name in ("view", "reshape", "broadcast_to"):
        if len(args) == 1 and args[0].kind not in (NUM, SEQ, SHAPE):
            return value  # view(dtype)
        value.dims, value.batch = sizes_from(args or list(kwargs.values()), x)
    elif name in ("expand", "repeat"):
        _expand(value, x, args)
    elif name in ("permute", "transpose", "swapaxes", "t", "movedim"):
        _permute(value, x, name, args)
    elif name in ("unsqueeze", "squeeze"):
        _squeeze(value, x, name, args, kwargs)
    elif name in ("flatten", "unflatten"):
        _flatten(value, x, name, args, kwargs)
    elif name in ("chunk", "split", "tensor_split", "split_with_sizes", "unbind"):
        return _parts(value, x, name, args, kwargs, frame, node)
    elif name in ("select", "narrow", "index_select"):
        axis = args[0].const if args else None
        if name == "select" and value.dims is not None and isinstance(axis, int) and value.dims:
            value.dims = tuple(size for at, size in enumerate(value.dims) if at != axis % len(value.dims))
        elif name == "narrow" and value.dims is not None and isinstance(axis, int) and len(args) > 2:
            value.dims = tuple(
                args[2] if at == axis % len(x.dims or (1,)) else size for at, size in enumerate(value.dims)
            )
        if isinstance(axis, int) and axis == x.batch and name == "select":
            value.batch = None
    elif name in ("view_as", "reshape_as", "expand_as"):
        value.dims = args[0].dims if args else None
    return value


def _expand(value: Val, x: Val, args: list[Val]) -> None:
    sizes, batch = sizes_from(args, None)
    if sizes is None:
        value.dims = None
        return
    old = x.dims or ()
    pad = len(sizes) - len(old)
    value.dims = tuple(
        old[at - pad] if size.const == -1 and at >= pad and old else size for at, size in enumerate(sizes)
    )
    value.batch = batch if batch is not None else x.batch


def _permute(value: Val, x: Val, name: str, args: list[Val]) -> None:
    order = [arg.const for arg in (args[0].data if len(args) == 1 and args[0].kind == SEQ else args) or ()]
    rank = len(x.dims) if x.dims is not None else None
    if name == "t":
        order = [0, 1]
    if name == "permute":
        if all(isinstance(axis, int) for axis in order) and order:
            places = [axis % len(order) for axis in order]
            if rank == len(order):
                value.dims = tuple(x.dims[axis] for axis in places)  # type: ignore[index]
            if x.batch is not None:
                value.batch = places.index(x.batch) if x.batch in places else None
        return
    if len(order) != 2 or not all(isinstance(axis, int) for axis in order):
        value.dims = None
        return
    first, second = order
    if rank is not None and rank > 0:
        first, second = first % rank, second % rank
        sizes = list(x.dims or ())
        if first < rank and second < rank:
            sizes[first], sizes[second] = sizes[second], sizes[first]
        value.dims = tuple(sizes)
    if x.batch is not None:
        value.batch = second if x.batch == first else first if x.batch == second else x.batch


def _squeeze(value: Val, x: Val, name: str, args: list[Val], kwargs: dict[str, Val]) -> None:
    place = args[0].const if args else kwargs["dim"].const if "dim" in kwargs else None
    if not isinstance(place, int):
        value.dims = None
        return
    if name == "unsqueeze":
        if x.dims is not None:
            sizes = list(x.dims)
            sizes.insert(place if place >= 0 else len(sizes) + 1 + place, const(1))
            value.dims = tuple(sizes)
        if x.batch is not None and 0 <= place <= x.batch:
            value.batch = x.batch + 1
    else:
        if x.dims is not None and x.dims:
            value.dims = tuple(size for at, size in enumerate(x.dims) if at != place % len(x.dims))
        if x.batch is not None and 0 <= place < x.batch:
            value.batch = x.batch - 1


def _flatten(value: Val, x: Val, name: str, args: list[Val], kwargs: dict[str, Val]) -> None:
    start = args[0].const if args else kwargs["start_dim"].const if "start_dim" in kwargs else 0
    if name == "flatten":
        end = args[1].const if len(args) > 1 else kwargs["end_dim"].const if "end_dim" in kwargs else -1
        if x.dims is not None and isinstance(start, int) and isinstance(end, int) and x.dims:
            rank = len(x.dims)
            start, end = start % rank, end % rank
            dep = None
            for size in x.dims[start : end + 1]:
                if size.dep is not None:
                    dep = size.dep if dep is None or size.dep.mode == ROWS else dep
            value.dims = (*x.dims[:start], num(dep, "i"), *x.dims[end + 1 :])
            if x.batch is not None and x.batch > start:
                value.batch = max(start, x.batch - (end - start))
        return
    parts = args[1] if len(args) > 1 else kwargs.get("sizes")
    if x.dims is not None and isinstance(start, int) and parts is not None and parts.data and x.dims:
        start %= len(x.dims)
        sizes, _ = sizes_from(parts.data, None)
        value.dims = (*x.dims[:start], *(sizes or ()), *x.dims[start + 1 :])
        if x.batch is not None and x.batch > start:
            value.batch = x.batch + len(sizes or ()) - 1
    else:
        value.dims = None


def _parts(value: Val, x: Val, name: str, args: list[Val], kwargs: dict[str, Val], frame: Frame, node: ast.Call) -> Val:
    """chunk, split: a list whose length, or whose items' size, follows its argument."""
    how = args[0] if args else next(iter(kwargs.values()), num())
    axis = args[1] if len(args) > 1 else kwargs.get("dim")
    if name == "unbind":
        axis, how = (args[0] if args else kwargs.get("dim")), num()
    place = axis.const if axis is not None and isinstance(axis.const, int) else 0
    rank = len(x.dims) if x.dims is not None else None
    dep = strongest([how])
    if rank:
        place %= rank
    is_rows = place == x.batch
    if name == "unbind":
        value.dims = tuple(size for at, size in enumerate(x.dims) if at != place) if x.dims is not None else None
        value.batch = None if is_rows else x.batch
        count = x.dims[place].dep if x.dims is not None and place < len(x.dims) else None
        return seq(None, count, value)
    if dep is not None and not is_rows:
        dep = dep.into(STRUCT, part=True)
        if x.dims is not None:
            value.dims = tuple(num(dep, "i") if at == place else size for at, size in enumerate(x.dims))
        elif place in (1, -1) and x.batch == 0:  # taken for a matrix
            value.dims = (rows(frame, node.lineno), num(dep, "i"))
        return seq(None, dep, value)
    if name == "chunk" and isinstance(how.const, int) and 0 < how.const <= 8:
        return seq([value] * how.const)
    if how.kind == SEQ and how.data is not None:
        return seq([value] * len(how.data))
    return seq(None, dep.into(ROWS) if dep is not None else None, value)


def join(name: str, parts: Val, axis: Val | None) -> Val:
    """torch.stack(parts, axis), torch.cat(parts, axis)."""
    item = element(parts) if parts.kind == SEQ else parts
    value = item.copy()
    if parts.kind == SEQ and item.kind != TENSOR:
        value = Val(TENSOR, item.dep)
    place = axis.const if axis is not None and isinstance(axis.const, int) else 0
    count = num(parts.dep, "i") if parts.kind == SEQ else num(elem="i")
    if parts.kind == SEQ and parts.data is not None and parts.dep is None:
        count = const(len(parts.data))
    if item.dims is None:
        value.dims = None
        if name == "stack" and item.batch is not None and 0 <= place <= item.batch:
            value.batch = item.batch + 1
        return value
    rank = len(item.dims) + (name == "stack")
    place = place % rank if rank else 0
    if name == "stack":
        value.dims = (*item.dims[:place], count, *item.dims[place:])
        if item.batch is not None and place <= item.batch:
            value.batch = item.batch + 1
    else:
        joined = num(stronger(item.dims[place].dep, parts.dep), "i") if place < len(item.dims) else count
        value.dims = (*item.dims[:place], joined, *item.dims[place + 1 :])
    if value.batch is None and count.dep is not None and count.dep.mode == ROWS:
        value.batch = place
    return value
