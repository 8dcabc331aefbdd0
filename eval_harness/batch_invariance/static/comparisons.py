"""Comparisons, minima and maxima: a bounds mask, a choice, a clipped count, or a share cut to a row."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from eval_harness.batch_invariance.static.arithmetic import OWN, broadcast, fold
from eval_harness.batch_invariance.static.values import (
    ANY,
    BLOCK,
    MAP,
    NC,
    NUM,
    ROWS,
    SEQ,
    STRUCT,
    TENSOR,
    Dep,
    Val,
    num,
    stronger,
)


def compare(ops: Sequence[type[ast.AST]], operands: Sequence[Val]) -> Val:
    """A chain of comparisons: a bounds mask where a kernel's index meets a size, a choice where sizes meet numbers."""
    if len(operands) == 2:
        value = _compare_known(ops[0], operands[0], operands[1])
        if value is None:
            return num(elem="b")
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
        index = index or operand.index or _is_row(operand)
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


def _is_row(value: Val) -> bool:
    """An integer that a kernel loaded: which row, token or tile this is."""
    return value.elem == "i" and value.const is NC and value.dep is None and (value.kind == BLOCK or value.name == OWN)


def _compare_known(op: type[ast.AST], a: Val, b: Val) -> Any:
    if op in (ast.Is, ast.IsNot):
        if b.const is None and a.kind != ANY and (a.const is not NC or a.kind != NUM or a.dep is not None):
            return (a.const is None) == (op is ast.Is)
        if a.const is not NC and b.const is not NC:
            return (a.const is b.const) == (op is ast.Is)
        return NC
    if op in (ast.In, ast.NotIn) and b.kind == MAP and all(isinstance(key, tuple) for key in b.data):
        return None  # a cache that fills as it runs: whether it holds this is no choice
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
