"""Builtins and the standard library, as far as sizes pass through them; triton's host helpers too."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.arithmetic import binary, quotient_up, widened
from eval_harness.batch_invariance.static.attributes import as_tensor
from eval_harness.batch_invariance.static.comparisons import compare, extreme
from eval_harness.batch_invariance.static.definitions import configuration
from eval_harness.batch_invariance.static.functions import call_function, strongest
from eval_harness.batch_invariance.static.iteration import iterate
from eval_harness.batch_invariance.static.merging import element, merge_all
from eval_harness.batch_invariance.static.python_containers import (
    any_of,
    counter_range,
    dictionary,
    enumerated,
    first_of,
    length_of,
    listed,
    mapped_items,
    namespace,
    next_item,
    parsed,
    partial,
    per_row_entry,
    product_of,
    reduced,
    sum_of,
    together,
    zipped,
)
from eval_harness.batch_invariance.static.state import Frame, PlainHandler, Run
from eval_harness.batch_invariance.static.values import (
    ANY,
    EXTENT,
    FUNC,
    NC,
    NUM,
    ROWS,
    SEQ,
    SHAPE,
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


def call_python(
    run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val | None:
    """The value of a library function by its last name; None: not known here."""
    handler = HANDLERS.get(name)
    return handler(run, frame, args, kwargs, node) if handler is not None else None


def _extreme(name: str) -> PlainHandler:
    def handler(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
        if len(args) != 1 or args[0].kind == NUM:
            return extreme(args, name) if args else unknown()
        values = args[0]
        key = kwargs.get("key")
        if key is not None and key.kind == FUNC:
            items, length = iterate(values)
            dep = struct(length)
            for item in items[:1]:
                dep = stronger(dep, struct(strongest([call_function(run, key.data[0], [item], {}, frame, node)])))
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


def _same(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return args[0] if args else num()


def _number(function: Callable[[Any], Any]) -> PlainHandler:
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


def _folded(function: Callable[..., Any]) -> PlainHandler:
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


def _bisect(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return num(struct(strongest(args)), "i")


def _cdiv(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    values = [*args, *kwargs.values()]
    return quotient_up(values[0], values[1]) if len(values) >= 2 else unknown()


def _config(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return configuration(args, kwargs)


def _clean(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return num(struct(strongest(args)))


def _divmod(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if len(args) < 2:
        return unknown()
    return seq([binary(ast.FloorDiv, args[0], args[1]), binary(ast.Mod, args[0], args[1])])


def _equal(run: Run, frame: Frame, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return compare([ast.Eq], args) if len(args) == 2 else num()


_CDIV = ("cdiv", "ceil_div", "ceildiv", "CeilDiv", "CEIL_DIV", "ceilDiv", "CEILDIV", "div_up", "divUp", "DIVUP",
         "DivUp", "DIV_UP", "div_ceil", "divide_up", "round_up", "roundup")  # fmt: skip

HANDLERS: dict[str, PlainHandler] = {
    **dict.fromkeys(("min", "fmin", "fminf"), _extreme("min")),
    **dict.fromkeys(("max", "fmax", "fmaxf"), _extreme("max")),
    **dict.fromkeys(_CDIV, _cdiv),
    "len": length_of,
    "sum": sum_of,
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
    "range": counter_range,
    "enumerate": enumerated,
    "zip": zipped,
    **dict.fromkeys(("make_tuple", "make_pair", "tie"), together),
    **dict.fromkeys(("list", "tuple", "sorted", "reversed", "set", "frozenset", "deque"), listed),
    "dict": dictionary,
    "partial": partial,
    **dict.fromkeys(("bisect", "bisect_left", "bisect_right"), _bisect),
    "next": next_item,
    "iter": _same,
    "map": mapped_items,
    "prod": product_of,
    "reduce": reduced,
    "divmod": _divmod,
    **dict.fromkeys(("any", "all"), any_of),
    "Config": _config,
    "SimpleNamespace": namespace,
    **dict.fromkeys(
        ("wrap_triton", "lru_cache", "cache", "deepcopy", "copy", "cast", "constexpr", "move", "forward"), _same
    ),
    **dict.fromkeys(("isinstance", "hasattr", "callable", "print", "id", "hash", "repr", "format"), _clean),
    "namedtuple": _clean,
    **dict.fromkeys(("loads", "literal_eval"), parsed),
    **dict.fromkeys(("heappop", "nsmallest", "nlargest"), first_of),
    "eq": _equal,
}
"""By the last part of the name; "sum" and its like are asked for only where they are Python's."""
