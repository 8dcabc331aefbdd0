"""Builtins and the standard library, as far as sizes pass through them; triton's host helpers too."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from typing import Any

from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.arithmetic import binary, compare, extreme, quotient_up, widened
from eval_harness.batch_invariance.static.attributes import as_tensor
from eval_harness.batch_invariance.static.definitions import configuration
from eval_harness.batch_invariance.static.functions import call_function, strongest
from eval_harness.batch_invariance.static.iteration import iterate
from eval_harness.batch_invariance.static.state import Frame, Instance, Run
from eval_harness.batch_invariance.static.values import (
    ANY,
    EXTENT,
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
    element,
    merge_all,
    num,
    seq,
    stronger,
    struct,
    unknown,
    with_dep,
)

Handler = Callable[[Run, Frame, list[Val], dict[str, Val], ast.Call], Val]


def call_python(
    run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val | None:
    """The value of a library function by its last name; None: not known here."""
    handler = HANDLERS.get(name)
    return handler(run, frame, args, kwargs, node) if handler is not None else None


def _extreme(name: str) -> Handler:
    def handler(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
        if len(args) != 1 or args[0].kind == NUM:
            return extreme(args, name) if args else unknown()
        values = args[0]
        key = kwargs.get("key")
        if key is not None and key.kind == FUNC:
            items, length = iterate(values)
            dep = struct(length)
            for item in items[:1]:
                dep = stronger(dep, struct(call_function(run, key.data[0], [item], {}, frame, node).dep))
            return merge_all(items, dep) if dep is None else with_dep(merge_all(items, dep), dep)
        if values.kind == TENSOR or (values.kind == ANY and values.name):
            return sources.over_rows(frame, as_tensor(values), name, node.lineno)
        if values.kind == SHAPE:
            return num(sources.count_elements(frame, values.data[0], node.lineno).dep, "i")
        if values.kind == SEQ and values.data:
            return extreme(values.data, name)
        if values.kind == SEQ and values.name == sources.PER_ROW:
            return sources.over_rows(frame, per_row_entry(values), name, node.lineno)
        item = element(values) if values.kind == SEQ else values
        if item.batch is not None:
            return sources.over_rows(frame, item, name, node.lineno)
        if values.dep is not None and values.dep.mode == ROWS and name == "max":
            return with_dep(item, values.dep.into(EXTENT, root=None))  # the longest row
        return with_dep(item, struct(values.dep))

    return handler


def per_row_entry(values: Val) -> Val:
    """An entry of a list with one entry a row, as the row's own."""
    entry = element(values).copy()
    entry.batch = 0
    return entry


def _len(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _sum(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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
        if result.kind == TENSOR and length.mode == STRUCT:
            run.events[("loop", "items")] = None
        dep = length if length.mode == ROWS and result.dep is None else struct(length)
        result = with_dep(result, dep if result.kind == NUM else None)
    elif result.kind == NUM:
        result.const = result.const if value.kind == SEQ and value.data is not None else NC
    return result


def _same(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return args[0] if args else num()


def _number(function: Callable[[Any], Any]) -> Handler:
    def handler(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
        if not args:
            return num()
        value = args[0]
        if value.const is not NC:
            try:
                return const(function(value.const))
            except (TypeError, ValueError, ArithmeticError):
                return num()
        if value.kind == TENSOR:  # a tensor of one element
            return num(value.dep, value.elem)
        if value.dep is None and value.kind in (NUM, ANY):
            result = num()
            result.index, result.pos = value.index, value.pos
            return result
        if value.kind == NUM and value.dep is not None and value.dep.root is not None and function is not int:
            value = value.copy()
            value.dep = value.dep.into(value.dep.mode, root=None) if value.dep is not None else None
        return value

    return handler


def _folded(function: Callable[..., Any]) -> Handler:
    """A function that keeps no proportion: log2, bit_length, gcd."""

    def handler(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
        if args and all(value.const is not NC for value in args):
            try:
                return const(function(*(value.const for value in args)))
            except (TypeError, ValueError, ArithmeticError):
                return num()
        return widened(num(strongest(args)))

    return handler


def _power_of_two(value: Any) -> int:
    return 1 << (int(value) - 1).bit_length() if value > 1 else 1


def _range(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    lo, hi, step = const(0), num(), const(1)
    if len(args) == 1:
        hi = args[0]
    elif len(args) >= 2:
        lo, hi = args[:2]
        step = args[2] if len(args) > 2 else step
    return Val(RANGE, data=(lo, hi, kwargs.get("step", step)))


def _enumerate(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    items, length = iterate(args[0]) if args else ([unknown()], None)
    known = args and args[0].kind == SEQ and args[0].data is not None
    counter = num(elem="i")
    pairs = [seq([const(position) if known else counter, item]) for position, item in enumerate(items)]
    value = seq(pairs, length) if known else seq(None, length, merge_all(pairs))
    if args and args[0].name == sources.PER_ROW:
        value.name = sources.PER_ROW
    return value


def _zip(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _listed(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """list, tuple, sorted, reversed, set: the same items (in no order that is followed)."""
    if not args:
        return seq([])
    value = args[0]
    if value.kind == SHAPE or (value.kind == SEQ and value.name == sources.PER_ROW):
        return value
    items, length = iterate(value)
    if value.kind in (SEQ, MAP) and length is None and (value.kind == MAP or value.data is not None):
        is_reversed = getattr(node.func, "id", "") == "reversed"
        key = kwargs.get("key")
        if key is not None and key.kind == FUNC and items:
            dep = struct(call_function(run, key.data[0], [items[0]], {}, frame, node).dep)
            if dep is not None:
                return seq(None, dep, with_dep(merge_all(items, dep), dep))
        return seq(items[::-1] if is_reversed else list(items))
    return seq(None, length, merge_all(items) if items else unknown())


def _together(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return seq(list(args))


def _dict(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    data: dict[Any, Val] = {}
    dep = None
    if args and args[0].kind == MAP:
        data, dep = dict(args[0].data), args[0].dep
    return Val(MAP, dep, data={**data, **kwargs})


def _partial(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _bisect(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return num(struct(strongest(args)), "i")


def _next(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return unknown()
    items, length = iterate(args[0])
    value = merge_all([*items, *args[1:]], struct(length)) if items else unknown(length)
    return with_dep(value, struct(length)) if length is not None and value.kind == NUM and value.const is NC else value


def _map(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if len(args) < 2:
        return unknown()
    items, length = iterate(args[1])
    if args[0].kind == FUNC:
        results = [call_function(run, args[0].data[0], [item], {}, frame, node) for item in items]
    else:
        results = items
    return seq(results if args[1].kind == SEQ and args[1].data is not None else None, length, merge_all(results))


def _prod(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return num()
    if args[0].kind == SHAPE:
        tensor, start, stop = args[0].data
        if start == 0:
            if stop is not None and tensor.dims is not None:
                return _product(list(tensor.dims[:stop]))
            return sources.count_elements(frame, tensor, node.lineno)
        return num(elem="i")
    if args[0].kind == SEQ and args[0].data is not None:
        return _product(args[0].data)
    return with_dep(element(args[0]), args[0].dep) if args[0].kind == SEQ else unknown(args[0].dep)


def _product(values: list[Val]) -> Val:
    result = const(1)
    for value in values:
        result = binary(ast.Mult, result, value)
    return result


def _cdiv(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    values = [*args, *kwargs.values()]
    return quotient_up(values[0], values[1]) if len(values) >= 2 else unknown()


def _config(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return configuration(args, kwargs)


def _pow(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return widened(num(strongest(args)))


def _clean(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return num(struct(strongest(args)))


def _reduce(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if len(args) >= 2 and args[1].kind == SHAPE:
        return sources.count_elements(frame, args[1].data[0], node.lineno)
    items, length = iterate(args[1]) if len(args) > 1 else ([unknown()], None)
    return with_dep(_product(items), length)


def _divmod(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if len(args) < 2:
        return unknown()
    return seq([binary(ast.FloorDiv, args[0], args[1]), binary(ast.Mod, args[0], args[1])])


def _any(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if args and args[0].kind == TENSOR:
        return sources.over_rows(frame, args[0], "any", node.lineno)
    items, length = iterate(args[0]) if args else ([], None)
    return num(struct(stronger(length, strongest(items))), "b")


def _namespace(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return Val(OBJ, data=Instance(None, dict(kwargs)))


def _equal(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return compare([ast.Eq], args) if len(args) == 2 else num()


def _parsed(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


_CDIV = ("cdiv", "ceil_div", "ceildiv", "CeilDiv", "CEIL_DIV", "ceilDiv", "CEILDIV", "div_up", "divUp", "DIVUP",
         "DivUp", "DIV_UP", "div_ceil", "divide_up", "round_up", "roundup")  # fmt: skip

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("min", "fmin", "fminf"), _extreme("min")),
    **dict.fromkeys(("max", "fmax", "fmaxf"), _extreme("max")),
    **dict.fromkeys(_CDIV, _cdiv),
    "len": _len,
    "sum": _sum,
    "int": _number(int),
    "float": _number(float),
    "bool": _number(bool),
    "abs": _number(abs),
    "round": _number(round),
    "ceil": _number(math.ceil),
    "floor": _number(math.floor),
    "str": _clean,
    "next_power_of_2": _number(_power_of_two),
    "log2": _folded(math.log2),
    "log": _folded(math.log),
    "sqrt": _folded(math.sqrt),
    "isqrt": _folded(math.isqrt),
    "gcd": _folded(math.gcd),
    "pow": _folded(pow),
    "bit_length": _folded(lambda value: int(value).bit_length()),
    "range": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    **dict.fromkeys(("make_tuple", "make_pair", "tie"), _together),
    **dict.fromkeys(("list", "tuple", "sorted", "reversed", "set", "frozenset", "deque"), _listed),
    "dict": _dict,
    "partial": _partial,
    **dict.fromkeys(("bisect", "bisect_left", "bisect_right"), _bisect),
    "next": _next,
    "iter": _same,
    "map": _map,
    "prod": _prod,
    "reduce": _reduce,
    "divmod": _divmod,
    **dict.fromkeys(("any", "all"), _any),
    "Config": _config,
    "SimpleNamespace": _namespace,
    **dict.fromkeys(
        ("wrap_triton", "lru_cache", "cache", "deepcopy", "copy", "cast", "constexpr", "move", "forward"), _same
    ),
    **dict.fromkeys(("isinstance", "hasattr", "callable", "print", "id", "hash", "repr", "format"), _clean),
    "namedtuple": _clean,
    **dict.fromkeys(("loads", "literal_eval"), _parsed),
    "eq": _equal,
}
"""By the last part of the name; "sum" and its like are asked for only where they are Python's."""
