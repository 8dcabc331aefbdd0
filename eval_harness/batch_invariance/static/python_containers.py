"""Builtins and the standard library on containers and iterators."""

from __future__ import annotations

import ast
import json
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.arithmetic import binary, quotient_up
from eval_harness.batch_invariance.static.attributes import as_tensor
from eval_harness.batch_invariance.static.functions import call_function, strongest
from eval_harness.batch_invariance.static.iteration import iterate
from eval_harness.batch_invariance.static.merging import element, merge_all
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Instance, Run
from eval_harness.batch_invariance.static.values import (
    ANY,
    FUNC,
    MAP,
    NC,
    NUM,
    OBJ,
    RANGE,
    ROWS,
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


def per_row_entry(values: Val) -> Val:
    """An entry of a list with one entry a row, as the row's own."""
    entry = element(values).copy()
    entry.batch = 0
    return entry


def length_of(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return num()
    value = args[0]
    if value.kind == SEQ:
        if value.data is not None and value.dep is None:
            return const(len(value.data))
        if value.name == sources.PER_ROW and value.dep is None:
            return sources.rows(frame, node.lineno)
        return num(value.dep, "i")
    if value.kind == MAP:
        return const(len(value.data)) if value.dep is None else num(value.dep, "i")
    if value.kind == RANGE:
        lo, hi, step = value.data
        return quotient_up(binary(ast.Sub, hi, lo) if lo.const != 0 else hi, step)
    if value.kind == TENSOR or (value.kind == ANY and value.name):
        return sources.size_at(frame, as_tensor(value), 0, node.lineno)
    if value.kind == SHAPE:
        tensor, start, _ = value.data
        return const(len(tensor.dims) - start) if tensor.dims is not None else num(elem="i")
    return num(elem="i")


def sum_of(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return num()
    value = args[0]
    if value.kind == TENSOR:
        return sources.over_rows(frame, value, "sum", node.lineno)
    if value.kind == SEQ and value.name == sources.PER_ROW:
        return sources.over_rows(frame, per_row_entry(value), "sum", node.lineno)
    items, length = iterate(value)
    result = const(0)
    for item in items:
        result = binary(ast.Add, result, item)
    if length is not None:
        if result.kind == TENSOR and result.elem not in ("i", "b") and length.mode == STRUCT:
            run.events["loop", "items"] = None
            report(
                run, frame, node.lineno, Mechanism.WORK_PARTITIONING, "bound", length, "the number of parts added up"
            )
        dep = length if length.mode == ROWS and result.dep is None else struct(length)
        result = with_dep(result, dep if result.kind == NUM else None)
    elif result.kind == NUM:
        result.const = result.const if value.kind == SEQ and value.data is not None else NC
    return result


def counter_range(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    lo, hi, step = const(0), num(), const(1)
    if len(args) == 1:
        hi = args[0]
    elif len(args) >= 2:
        lo, hi = args[:2]
        step = args[2] if len(args) > 2 else step
    return Val(RANGE, data=(lo, hi, kwargs.get("step", step)))


def enumerated(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    items, length = iterate(args[0]) if args else ([unknown()], None)
    known = args and args[0].kind == SEQ and args[0].data is not None
    counter = num(elem="i")
    pairs = [seq([const(position) if known else counter, item]) for position, item in enumerate(items)]
    value = seq(pairs, length) if known else seq(None, length, merge_all(pairs))
    if args and args[0].name == sources.PER_ROW:
        value.name = sources.PER_ROW
    return value


def zipped(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if args and all(value.kind == SEQ and value.data is not None for value in args):
        return seq([seq(list(row)) for row in zip(*(value.data for value in args), strict=False)])
    dep = None
    parts = []
    for value in args:
        items, length = iterate(value)
        dep = stronger(dep, length)
        parts.append(merge_all(items) if items else unknown())
    value = seq(None, dep, seq(parts))
    if any(part.name == sources.PER_ROW for part in args):
        value.name = sources.PER_ROW
    return value


def listed(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """list, tuple, sorted, reversed, set: the same items (in no order that is followed)."""
    if not args:
        return seq([])
    value = args[0]
    if value.kind == SHAPE or (value.kind == SEQ and value.name == sources.PER_ROW):
        return value
    items, length = iterate(value)
    key = kwargs.get("key")
    order = None
    if key is not None and key.kind == FUNC and items:
        order = struct(strongest([call_function(run, key.data[0], [items[0]], {}, frame, node)]))
    elif getattr(node.func, "id", "") == "sorted" and value.kind == SEQ:
        order = struct(strongest([value]))
    if order is not None:
        return seq(None, order, with_dep(merge_all(items, order), order))
    if value.kind in (SEQ, MAP) and length is None and (value.kind == MAP or value.data is not None):
        is_reversed = getattr(node.func, "id", "") == "reversed"
        return seq(items[::-1] if is_reversed else list(items))
    return seq(None, length, merge_all(items) if items else unknown())


def together(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return seq(list(args))


def dictionary(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    data: dict[Any, Val] = {}
    dep = None
    if args and args[0].kind == MAP:
        data, dep = dict(args[0].data), args[0].dep
    return Val(MAP, dep, data={**data, **kwargs})


def partial(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args or args[0].kind not in (FUNC, "launch"):
        return args[0] if args else unknown()
    value = args[0].copy()
    value.data = []
    for func in args[0].data:
        changed = func.clone()
        changed.positional = [*func.positional, *args[1:]]
        changed.keywords = {**func.keywords, **kwargs}
        value.data.append(changed)
    return value


def next_item(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return unknown()
    items, length = iterate(args[0])
    value = merge_all([*items, *args[1:]], struct(length)) if items else unknown(length)
    return with_dep(value, struct(length)) if length is not None and value.kind == NUM and value.const is NC else value


def mapped_items(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if len(args) < 2:
        return unknown()
    items, length = iterate(args[1])
    if args[0].kind == FUNC:
        results = [call_function(run, args[0].data[0], [item], {}, frame, node) for item in items]
    else:
        results = items
    return seq(results if args[1].kind == SEQ and args[1].data is not None else None, length, merge_all(results))


def product_of(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return num()
    if args[0].kind == SHAPE:
        tensor, start, stop = args[0].data
        if start == 0:
            if stop is not None and tensor.dims is not None:
                return product(list(tensor.dims[:stop]))
            return sources.count_elements(frame, tensor, node.lineno)
        return num(elem="i")
    if args[0].kind == SEQ and args[0].data is not None:
        return product(args[0].data)
    return with_dep(element(args[0]), args[0].dep) if args[0].kind == SEQ else unknown(args[0].dep)


def product(values: list[Val]) -> Val:
    result = const(1)
    for value in values:
        result = binary(ast.Mult, result, value)
    return result


def reduced(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if len(args) >= 2 and args[1].kind == SHAPE:
        return sources.count_elements(frame, args[1].data[0], node.lineno)
    items, length = iterate(args[1]) if len(args) > 1 else ([unknown()], None)
    item = merge_all(items) if items else unknown()
    if item.kind == TENSOR:
        if length is not None and length.mode == STRUCT and item.elem not in ("i", "b"):
            report(
                run, frame, node.lineno, Mechanism.WORK_PARTITIONING, "bound", length, "the number of parts added up"
            )
        return item
    return with_dep(product(items), length)


def any_of(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if args and args[0].kind == TENSOR:
        return sources.over_rows(frame, args[0], "any", node.lineno)
    items, length = iterate(args[0]) if args else ([], None)
    return num(struct(stronger(length, strongest(items))), "b")


def namespace(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return Val(OBJ, data=Instance(None, dict(kwargs)))


def first_of(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """heapq.heappop: which item comes first follows whatever they are ordered by."""
    values = next((value for value in args if value.kind == SEQ), None)
    if values is None:
        return unknown(struct(strongest(args)))
    dep = struct(strongest([values]))
    item = element(values)
    if item.kind == SEQ and item.data is not None:
        item = seq([with_dep(part, dep) for part in item.data])
    return with_dep(item, dep)


def parsed(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """json.loads of text in the source."""
    text = args[0].const if args else None
    if not isinstance(text, str):
        return unknown()
    try:
        return _from_data(json.loads(text) if len(text) < 100_000 else None)
    except ValueError:
        return unknown()


def _from_data(data: Any) -> Val:
    if isinstance(data, dict):
        return Val(MAP, data={key: _from_data(item) for key, item in data.items()})
    if isinstance(data, list):
        return seq([_from_data(item) for item in data])
    return const(data)
