"""Evaluates Python expressions (and C++ ones, which cpp_parser turns into the same nodes) to abstract values."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.arithmetic import binary, unary
from eval_harness.batch_invariance.static.attributes import attribute
from eval_harness.batch_invariance.static.binding import assign
from eval_harness.batch_invariance.static.branches import evaluate_ways
from eval_harness.batch_invariance.static.calls import call
from eval_harness.batch_invariance.static.comparisons import compare
from eval_harness.batch_invariance.static.comprehensions import comprehension, dict_comprehension
from eval_harness.batch_invariance.static.contractions import contraction
from eval_harness.batch_invariance.static.cross_row import check_statistic
from eval_harness.batch_invariance.static.iteration import key_of
from eval_harness.batch_invariance.static.merging import element, merge
from eval_harness.batch_invariance.static.names import lookup
from eval_harness.batch_invariance.static.routing import check_drop
from eval_harness.batch_invariance.static.state import EXPRESSIONS, Frame, Func, Run
from eval_harness.batch_invariance.static.subscripts import subscript
from eval_harness.batch_invariance.static.values import (
    BLOCK,
    FUNC,
    MAP,
    NC,
    NUM,
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

_DATA = (BLOCK, TENSOR, NUM)


def _constant(run: Run, node: ast.Constant, frame: Frame) -> Val:
    value = getattr(node, "abstract", None)
    if value is None:
        value = node.abstract = const(node.value)  # type: ignore[attr-defined]
    return value


def _name(run: Run, node: ast.Name, frame: Frame) -> Val:
    return lookup(run, node.id, frame)


def _binop(run: Run, node: ast.BinOp, frame: Frame) -> Val:
    a, b = run.eval(node.left, frame), run.eval(node.right, frame)
    if type(node.op) is ast.MatMult:
        return contraction(run, frame, node, "matmul", a, b)
    if TENSOR in (a.kind, b.kind) and type(node.op) is ast.Mod and a.const is not NC:
        return unknown()  # text formatting
    value = binary(type(node.op), a, b)
    if value.elem == "f" and value.const is NC and value.kind in _DATA:
        run.events["op", type(node.op).__name__] = None
        if value.dep is not None:
            check_statistic(run, frame, node, a, b)
    return value


def _unaryop(run: Run, node: ast.UnaryOp, frame: Frame) -> Val:
    return unary(type(node.op), run.eval(node.operand, frame))


def _compare(run: Run, node: ast.Compare, frame: Frame) -> Val:
    operands = [run.eval(node.left, frame), *(run.eval(other, frame) for other in node.comparators)]
    if len(operands) == 2:
        check_drop(run, frame, node, operands)
    return compare([type(op) for op in node.ops], operands)


def _boolop(run: Run, node: ast.BoolOp, frame: Frame) -> Val:
    is_or = type(node.op) is ast.Or
    result: Val | None = None
    for part in node.values:
        value = run.eval(part, frame)
        result = value if result is None else merge(result, value, struct(result.dep))
        if value.const is not NC and bool(value.const) == is_or:
            return value if result is value or value.const in (True, False) else result
        if value.const is not NC and result is value:
            result = None  # decided by what follows
    return result if result is not None else const(not is_or)


def _ifexp(run: Run, node: ast.IfExp, frame: Frame) -> Val:
    test = run.eval(node.test, frame)
    if test.const is not NC:
        return run.eval(node.body if test.const else node.orelse, frame)
    dep = struct(test.dep)
    if dep is None:
        return merge(run.eval(node.body, frame), run.eval(node.orelse, frame))
    dep = dep.step(frame.module.file, node.lineno + frame.module.first_line)
    return evaluate_ways(
        run, frame, node, dep, [lambda: run.eval(node.body, frame), lambda: run.eval(node.orelse, frame)]
    )


def _tuple(run: Run, node: ast.Tuple | ast.List | ast.Set, frame: Frame) -> Val:
    items: list[Val] = []
    for part in node.elts:
        if type(part) is ast.Starred:
            value = run.eval(part.value, frame)
            if value.kind == SEQ and value.data is not None:
                items.extend(value.data)
                continue
            if value.kind == SHAPE:
                starred = value.copy()
                starred.name = "*"
                items.append(starred)
                continue
            return seq(None, value.dep, element(value) if value.kind == SEQ else unknown(value.dep))
        items.append(run.eval(part, frame))
    return seq(items)


def _dict(run: Run, node: ast.Dict, frame: Frame) -> Val:
    items: dict[Any, Val] = {}
    dep = None
    for key, part in zip(node.keys, node.values, strict=True):
        value = run.eval(part, frame)
        if key is None:
            if value.kind == MAP:
                items.update(value.data)
            dep = stronger(dep, value.dep)
            continue
        items[key_of(run.eval(key, frame), len(items))] = value
    return Val(MAP, dep, data=items)


def _attribute(run: Run, node: ast.Attribute, frame: Frame) -> Val:
    return attribute(run, run.eval(node.value, frame), node.attr, frame, node)


def _subscript(run: Run, node: ast.Subscript, frame: Frame) -> Val:
    return subscript(run, run.eval(node.value, frame), node, frame)


def _lambda(run: Run, node: ast.Lambda, frame: Frame) -> Val:
    return Val(FUNC, data=[Func("<lambda>", node, frame.module, frame)])


def _joined(run: Run, node: ast.JoinedStr, frame: Frame) -> Val:
    dep = None
    for part in node.values:
        if type(part) is ast.FormattedValue:
            dep = stronger(dep, run.eval(part.value, frame).dep)
    return num(struct(dep))


def _walrus(run: Run, node: ast.NamedExpr, frame: Frame) -> Val:
    value = run.eval(node.value, frame)
    assign(run, node.target, value, frame, node)
    return value


def _starred(run: Run, node: ast.Starred, frame: Frame) -> Val:
    return run.eval(node.value, frame)


def _yield(run: Run, node: ast.Yield, frame: Frame) -> Val:
    value = run.eval(node.value, frame) if node.value is not None else const(None)
    frame.yields.append(with_dep(value, frame.control) if value.kind == NUM else value)
    return unknown()


def _await(run: Run, node: Any, frame: Frame) -> Val:
    return run.eval(node.value, frame) if node.value is not None else const(None)


EXPRESSIONS.update(
    {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.BinOp: _binop,
        ast.UnaryOp: _unaryop,
        ast.Compare: _compare,
        ast.BoolOp: _boolop,
        ast.IfExp: _ifexp,
        ast.Tuple: _tuple,
        ast.List: _tuple,
        ast.Set: _tuple,
        ast.Dict: _dict,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.Call: call,
        ast.Lambda: _lambda,
        ast.JoinedStr: _joined,
        ast.NamedExpr: _walrus,
        ast.Starred: _starred,
        ast.ListComp: comprehension,
        ast.GeneratorExp: comprehension,
        ast.SetComp: comprehension,
        ast.DictComp: dict_comprehension,
        ast.Await: _await,
        ast.Yield: _yield,
        ast.YieldFrom: _await,
    }
)
