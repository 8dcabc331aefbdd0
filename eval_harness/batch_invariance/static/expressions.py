"""Evaluates Python expressions (and C++ ones, which cpp_parser turns into the same nodes) to abstract values."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.arithmetic import binary, compare, unary
from eval_harness.batch_invariance.static.calls import call
from eval_harness.batch_invariance.static.attributes import attribute
from eval_harness.batch_invariance.static.binding import assign
from eval_harness.batch_invariance.static.branches import evaluate_ways
from eval_harness.batch_invariance.static.iteration import is_exact, iterate, key_of
from eval_harness.batch_invariance.static.names import lookup
from eval_harness.batch_invariance.static.contractions import contraction
from eval_harness.batch_invariance.static.routing import check_drop
from eval_harness.batch_invariance.static.sources import PER_ROW
from eval_harness.batch_invariance.static.cross_row import check_statistic
from eval_harness.batch_invariance.static.state import EXPRESSIONS, Frame, Func, Run
from eval_harness.batch_invariance.static.subscripts import subscript
from eval_harness.batch_invariance.static.values import (
    BLOCK,
    FUNC,
    LIB,
    MAP,
    NC,
    NUM,
    RANGE,
    SEQ,
    SHAPE,
    TENSOR,
    Val,
    const,
    element,
    merge,
    merge_all,
    num,
    seq,
    stronger,
    struct,
    unknown,
    with_dep,
)

_DATA = (BLOCK, TENSOR, NUM)
_MAX_ITEMS = 24
"""Items of a comprehension that are told apart."""


def _constant(run: Run, node: ast.Constant, frame: Frame) -> Val:
    return const(node.value)


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
    if any(operand.dep is not None for operand in operands):
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


def _comprehension(run: Run, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, frame: Frame) -> Val:
    results, dep = _generate(run, node.generators, [node.elt], frame)
    items = [result[0] for result in results]
    if dep is None and items and results[0][1].const is not None:
        return seq(items)
    value = seq(None, dep, merge_all(items) if items else None)
    if results and results[0][1].name == PER_ROW:
        value.name = PER_ROW  # still one entry a row
    return value


def _dict_comprehension(run: Run, node: ast.DictComp, frame: Frame) -> Val:
    results, dep = _generate(run, node.generators, [node.key, node.value], frame)
    return Val(MAP, dep, data={key_of(key, serial): value for serial, (key, value, *_) in enumerate(results)})


def _generate(
    run: Run, generators: list[ast.comprehension], parts: list[ast.expr], frame: Frame
) -> tuple[list[tuple[Val, ...]], Any]:
    """Values of the parts for every combination (few and known), or once for any; and what their number follows.

    The last value of each tuple is None as a constant where items are not told apart; its name says one a row.
    """
    inner = Frame(frame.module, frame, frame.func)
    inner.kernel = frame.kernel
    results: list[tuple[Val, ...]] = []
    dep = None
    exact, per_row = True, False

    def walk(position: int) -> None:
        nonlocal dep, exact, per_row
        if position == len(generators):
            results.append((*(run.eval(part, inner) for part in parts), const(None)))
            return
        generator = generators[position]
        iterable = run.eval(generator.iter, inner)
        items, length = iterate(iterable)
        exact = exact and is_exact(iterable)
        if iterable.name == PER_ROW:
            per_row = True
        dep = stronger(dep, length)
        if len(items) > 1 and len(results) > _MAX_ITEMS:
            items, exact = [merge_all(items)], False
        for item in items:
            assign(run, generator.target, item, inner, generator.target)
            kept = True
            for test in generator.ifs:
                value = run.eval(test, inner)
                kept = kept and (value.const is NC or bool(value.const))
                exact = exact and value.const is not NC
                dep = stronger(dep, struct(value.dep))
            if kept:
                walk(position + 1)

    walk(0)
    mark = const(None if not exact else 1)
    if per_row and len(generators) == 1 and not generators[0].ifs:
        mark.name = PER_ROW
    return [(*result[:-1], mark) for result in results], dep


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
        ast.ListComp: _comprehension,
        ast.GeneratorExp: _comprehension,
        ast.SetComp: _comprehension,
        ast.DictComp: _dict_comprehension,
        ast.Await: _await,
        ast.Yield: _await,
    }
)
