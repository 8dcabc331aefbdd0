"""What arithmetic does to a dependency: rows times heads still count rows, K // splits is the length of a part."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from eval_harness.batch_invariance.static.merging import merge
from eval_harness.batch_invariance.static.values import (
    ANY,
    BLOCK,
    FUNC,
    NC,
    NUM,
    PTR,
    ROWS,
    SEQ,
    STRUCT,
    TENSOR,
    Dep,
    Val,
    join_elem,
    num,
    seq,
    stronger,
    struct,
)

_FOLD: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor)
_MAX_FOLDED = 1 << 62


def fold(op: type[ast.AST], a: Any, b: Any) -> Any:
    """The constant that two constants give, or NC."""
    function = _FOLD.get(op)
    if function is None or not isinstance(a, int | float | str | bool) or not isinstance(b, int | float | str | bool):
        return NC
    if op in (ast.LShift, ast.RShift) and not (isinstance(b, int) and 0 <= b < 64):
        return NC
    if op is ast.Mult and (isinstance(a, str) or isinstance(b, str)):
        return NC
    try:
        value = function(a, b)
    except (TypeError, ValueError, ArithmeticError):
        return NC
    return NC if isinstance(value, int) and abs(value) > _MAX_FOLDED else value


def binary(op: type[ast.AST], a: Val, b: Val) -> Val:
    """a op b."""
    if a.const is not NC and b.const is not NC:
        value = fold(op, a.const, b.const)
        if value is not NC:
            result = num(elem="b" if isinstance(value, bool) else "i" if isinstance(value, int) else None)
            result.const = value
            if isinstance(value, float):
                result.elem = "f"
            return result
    if a.kind == PTR or b.kind == PTR:
        pointer, offset = (a, b) if a.kind == PTR else (b, a)
        result = pointer.copy()
        result.dims = broadcast(pointer.dims, offset.dims if offset.kind == BLOCK else None)
        result.pos = pointer.pos or offset.pos
        result.index = pointer.index or offset.const is NC
        return result
    if a.kind == SEQ or b.kind == SEQ:
        return _sequences(op, a, b)
    result = Val(_kind(a, b), _mode(op, a, b))
    result.elem = _elem(op, a, b)
    if result.kind in (BLOCK, TENSOR):
        result.dims = broadcast(a.dims, b.dims)
        if result.kind == TENSOR:
            first, second = (a, b) if a.kind == TENSOR else (b, a)
            result.batch = first.batch if first.batch is not None else second.batch
            if first.kind != second.kind:
                result.dims = first.dims
    result.index = (a.index or b.index) and result.elem != "f"
    if a.pos is not None or b.pos is not None:
        result.pos = _position(op, a, b)
    if result.kind == NUM and OWN in (a.name, b.name):
        result.name = OWN
    return result


def _kind(a: Val, b: Val) -> str:
    kinds = (a.kind, b.kind)
    for kind in (BLOCK, TENSOR):
        if kind in kinds:
            return kind
    return NUM if NUM in kinds else ANY


def _elem(op: type[ast.AST], a: Val, b: Val) -> str | None:
    if op is ast.Div:
        return "f"
    if op in _BITS:
        return "b" if a.elem == b.elem == "b" else "i"
    elem = join_elem(a, b)
    return "i" if elem == "b" else elem


def _position(op: type[ast.AST], a: Val, b: Val) -> Dep | None:
    """pid % splits is a split, not a row; pid // rows neither."""
    if op is ast.Mod:
        return a.pos if b.dep is not None else None
    if op is ast.FloorDiv and b.dep is not None:
        return None
    return a.pos or b.pos


def _mode(op: type[ast.AST], a: Val, b: Val) -> Dep | None:
    left, right = a.dep, b.dep
    if left is None and right is None:
        return None
    if op is ast.Mult:
        return _product(left, right)
    if op in (ast.Add, ast.Sub):
        return _sum(op, a, b)
    if op in (ast.FloorDiv, ast.Div):
        if left is None and a.index and right is not None and right.mode == ROWS:
            return None  # pid // rows is a part, whatever the number of rows
        return _quotient(left, right)
    if op is ast.Mod:
        return _remainder(a, b)
    if op is ast.RShift and right is None:
        return left.into(left.mode, root=None) if left else None
    if op in _BITS and left is not None and right is not None:
        return stronger(left, right)
    if op is ast.BitAnd and (a.kind == BLOCK or b.kind == BLOCK):
        return stronger(left, right)
    return struct(stronger(left, right))


def _product(left: Dep | None, right: Dep | None) -> Dep | None:
    if left is None or right is None:
        return left or right
    rows = left if left.mode == ROWS else right
    if rows.mode == ROWS:
        return rows.into(ROWS, root=None)
    return stronger(left, right)


def _sum(op: type[ast.AST], a: Val, b: Val) -> Dep | None:
    left, right = a.dep, b.dep
    if left is None or right is None:
        dep = left or right
        assert dep is not None
        if right is not None and op is ast.Sub and not a.index and dep.mode != STRUCT:
            return dep.into(STRUCT)  # SM count - rows
        return dep.into(dep.mode, root=None)
    if op is ast.Sub and left.mode == right.mode == ROWS:
        return left.into(STRUCT)  # where one share of the work starts inside another
    return stronger(left, right)


def _quotient(left: Dep | None, right: Dep | None) -> Dep | None:
    if right is None:
        # rows // heads may leave no exact multiple
        return left.into(left.mode, root=None) if left else None
    if left is not None and left.mode == ROWS:
        if right.mode == ROWS:
            return None if left.root is not None and left.root == right.root else left.into(STRUCT, part=True)
        return left.into(ROWS, root=None)  # cdiv(rows, tile)
    return right.into(STRUCT, part=True)


def _remainder(a: Val, b: Val) -> Dep | None:
    left, right = a.dep, b.dep
    if left is not None and right is not None and left.root is not None and left.root == right.root:
        return None
    if left is None and a.index:
        return None if right is None or right.mode == ROWS else right  # pid % rows is a row
    return struct(stronger(left, right))


OWN = "<own>"
"""Val.name of a scalar that a kernel loaded: a property of a row."""


def broadcast(a: tuple[Val, ...] | None, b: tuple[Val, ...] | None) -> tuple[Val, ...] | None:
    """Sizes of a result, aligned at the last dimension; of two sizes the one that is not 1."""
    if not a or not b:
        return a or b
    if len(a) < len(b):
        a, b = b, a
    pad = len(a) - len(b)
    return a[:pad] + tuple(y if x.const == 1 else x for x, y in zip(a[pad:], b, strict=True))


def _sequences(op: type[ast.AST], a: Val, b: Val) -> Val:
    if op is ast.Add and a.kind == b.kind == SEQ:
        dep = stronger(a.dep, b.dep)
        if a.data is not None and b.data is not None:
            return seq(a.data + b.data, dep)
        from_either = [value.dims[0] if value.data is None and value.dims else None for value in (a, b)]
        items = [item for item in from_either if item is not None] + (a.data or []) + (b.data or [])
        item = items[0] if items else None
        for other in items[1:]:
            item = merge(item, other) if item is not None else other
        return seq(None, dep, item)
    if op is ast.Mult:
        sequence, count = (a, b) if a.kind == SEQ else (b, a)
        if sequence.data is not None and isinstance(count.const, int) and 0 <= count.const * len(sequence.data) <= 64:
            return seq(sequence.data * count.const, sequence.dep)
        item = sequence.data[0] if sequence.data else (sequence.dims[0] if sequence.dims else None)
        return seq(None, stronger(sequence.dep, count.dep), item)
    return Val(ANY, stronger(a.dep, b.dep))


def unary(op: type[ast.AST], a: Val) -> Val:
    if (a.const is not NC and isinstance(a.const, int | float | bool)) or a.const is None:
        result = num(elem=a.elem)
        if op is ast.Not:
            result.const, result.elem = not a.const, "b"
            return result
        if a.const is not None:
            result.const = -a.const if op is ast.USub else +a.const if op is ast.UAdd else NC
            if op is ast.Invert and isinstance(a.const, int):
                result.const = ~a.const
        return result
    if op is ast.Not:
        known = a.kind in (FUNC,) or (a.kind == SEQ and a.data is not None and a.dep is None)
        result = num(a.dep if a.elem != "b" else struct(a.dep), "b")  # `not rows` still asks for rows
        result.index = a.index
        if known:
            result.const = a.kind != FUNC and not a.data
        return result
    result = a.copy()
    result.const = NC
    result.data = None if a.kind == NUM else a.data
    if op is ast.USub and a.dep is not None:
        result.dep = a.dep.into(a.dep.mode, root=None)
    return result


def quotient_up(a: Val, b: Val) -> Val:
    """cdiv(a, b)."""
    if isinstance(a.const, int) and isinstance(b.const, int) and b.const:
        result = num(elem="i")
        result.const = -(-a.const // b.const)
        return result
    result = binary(ast.FloorDiv, a, b)
    if result.dep is not None and result.dep.root is not None:
        result.dep = result.dep.into(result.dep.mode, root=None)
    return result


def widened(value: Val, mode: int = STRUCT) -> Val:
    """Through a function that keeps no proportion (log2, bit_length)."""
    result = num(None if value.dep is None else value.dep.into(mode, root=None))
    result.index, result.pos = value.index, value.pos
    return result
