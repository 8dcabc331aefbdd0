"""What arithmetic does to a dependency: rows times heads still count rows, K // splits is a part, a comparison a choice."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from eval_harness.batch_invariance.static.values import (
    ANY,
    BLOCK,
    EXTENT,
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
    merge,
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


def compare(ops: Sequence[type[ast.AST]], operands: Sequence[Val]) -> Val:
    """A chain of comparisons: a bounds mask where a kernel's index meets a size, a choice where sizes meet numbers."""
    if len(operands) == 2:
        value = _compare_known(ops[0], operands[0], operands[1])
        if value is not NC:
            result = num(elem="b")
            result.const = value
            return result
    kind, dims, dep, index = NUM, None, None, False
    batch = None
    for operand in operands:
        if operand.kind in (BLOCK, TENSOR):
            kind = operand.kind
            dims = broadcast(dims, operand.dims)
            batch = operand.batch if batch is None else batch
        index = index or operand.index
        dep = stronger(dep, operand.dep)
    result = Val(kind, None, dims=dims, elem="b")
    result.batch = batch
    result.index = index
    for operand in operands:
        result.pos = result.pos or operand.pos
    if dep is not None and not (index and (dep.mode != STRUCT or _meets_rows(operands))):
        result.dep = dep.into(STRUCT)
    return result


def _meets_rows(operands: Sequence[Val]) -> bool:
    """Whether an index is held against a number of rows: the end of the batch, whatever the index is made of."""
    return any(operand.dep is not None and operand.dep.mode == ROWS and not operand.index for operand in operands)


def _compare_known(op: type[ast.AST], a: Val, b: Val) -> Any:
    if op in (ast.Is, ast.IsNot):
        if b.const is None and a.kind != ANY and (a.const is not NC or a.kind != NUM or a.dep is not None):
            return (a.const is None) == (op is ast.Is)
        if a.const is not NC and b.const is not NC:
            return (a.const is b.const) == (op is ast.Is)
        return NC
    if op in (ast.In, ast.NotIn) and a.const is not NC and b.kind == SEQ and b.data is not None:
        if all(item.const is not NC for item in b.data):
            return any(item.const == a.const for item in b.data) == (op is ast.In)
        return NC
    if a.const is not NC and b.const is not NC:
        if op is ast.Eq:
            return a.const == b.const
        if op is ast.NotEq:
            return a.const != b.const
        return fold(op, a.const, b.const)
    return NC


def extreme(operands: Sequence[Val], name: str) -> Val:
    """min or max of scalars or blocks: a clipped count is a count; a row's own bound against a share is a part."""
    if all(operand.const is not NC for operand in operands):
        try:
            value = (min if name == "min" else max)(operand.const for operand in operands)
        except (TypeError, ValueError):
            return num()
        result = num(elem="f" if isinstance(value, float) else "i")
        result.const = value
        return result
    dep: Dep | None = None
    kind, dims = NUM, None
    own = False
    result = Val(NUM)
    for operand in operands:
        dep = stronger(dep, operand.dep)
        if operand.kind in (BLOCK, TENSOR):
            kind, dims = operand.kind, broadcast(dims, operand.dims)
            result.batch = operand.batch if result.batch is None else result.batch
        own = own or operand.name == OWN
        result.index = result.index or operand.index
        result.pos = result.pos or operand.pos
        result.elem = operand.elem if result.elem is None or operand.elem == "f" else result.elem
    if dep is not None:
        dep = dep.into(STRUCT) if own and dep.mode == ROWS else dep.into(dep.mode, root=None)
    result.kind, result.dims, result.dep = kind, dims, dep
    return result


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
    if a.const is not NC and isinstance(a.const, int | float | bool) or a.const is None:
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
        result = num(struct(a.dep), "b")
        result.index = a.index
        if known:
            result.const = a.kind != FUNC and not a.data
        return result
    result = a.copy()
    result.const = NC
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


def is_length(dep: Dep | None) -> bool:
    return dep is not None and dep.mode == EXTENT
