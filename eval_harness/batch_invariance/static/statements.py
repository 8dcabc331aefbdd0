"""Statements other than conditions and loops: assignments, definitions, returns, imports."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.arithmetic import binary
from eval_harness.batch_invariance.static.binding import append_item, assign
from eval_harness.batch_invariance.static.branches import LEFT, RAISED, RETURNED
from eval_harness.batch_invariance.static.cross_row import check_statistic
from eval_harness.batch_invariance.static.definitions import define_class, define_function
from eval_harness.batch_invariance.static.merging import merge
from eval_harness.batch_invariance.static.names import import_names
from eval_harness.batch_invariance.static.patterns import SUBJECT, as_ifs
from eval_harness.batch_invariance.static.state import STATEMENTS, Frame, Run
from eval_harness.batch_invariance.static.values import ANY, MAP, NC, SEQ, TENSOR, Val, const, stronger, unknown


def _assign(run: Run, node: ast.Assign, frame: Frame) -> None:
    value = run.eval(node.value, frame)
    for target in node.targets:
        assign(run, target, value, frame, node)


def _annotated(run: Run, node: ast.AnnAssign, frame: Frame) -> None:
    if node.value is not None:
        assign(run, node.target, run.eval(node.value, frame), frame, node)


def _augmented(run: Run, node: ast.AugAssign, frame: Frame) -> None:
    old, value = run.eval(node.target, frame), run.eval(node.value, frame)
    if isinstance(node.target, ast.Subscript) and old.kind == TENSOR:
        return  # contents change in place
    changed = binary(type(node.op), old, value)
    if changed.elem == "f" and changed.const is NC:
        run.events["op", type(node.op).__name__] = None
        if changed.dep is not None:
            check_statistic(run, frame, node, old, value)
    assign(run, node.target, changed, frame, node)


def _expression(run: Run, node: ast.Expr, frame: Frame) -> None:
    value = node.value
    if type(value) is ast.Constant:
        return
    if (
        type(value) is ast.Call
        and type(value.func) is ast.Attribute
        and value.func.attr in _GROWING
        and (value.args or value.keywords)
    ):
        owner = run.eval(value.func.value, frame)
        if owner.kind in (SEQ, MAP, ANY):
            _grow(run, value, owner, frame)
            return
    if type(value) is ast.Call and getattr(value.func, "attr", getattr(value.func, "id", "")) == "heappush":
        owner = run.eval(value.args[0], frame)
        if owner.kind == SEQ and len(value.args) == 2:
            append_item(run, value.args[0], owner, [run.eval(value.args[1], frame)], frame)
            return
    run.eval(value, frame)


_GROWING = frozenset(("append", "extend", "update", "insert", "appendleft", "push_back"))


def _grow(run: Run, call: ast.Call, owner: Val, frame: Frame) -> None:
    """list.append(x), dict.update(other): the name is bound to the longer container."""
    target: Any = call.func
    items = [run.eval(argument, frame) for argument in call.args]
    if owner.kind == MAP and target.attr == "update":
        changed = Val(MAP, owner.dep, data=dict(owner.data))
        for other in items:
            if other.kind == MAP:
                changed.data.update(other.data)
                changed.dep = stronger(changed.dep, other.dep)
        for keyword in call.keywords:
            if keyword.arg is not None:
                changed.data[keyword.arg] = run.eval(keyword.value, frame)
        assign(run, target.value, changed, frame, call)
    elif owner.kind == SEQ:
        if target.attr == "insert":
            items = items[1:]
        if target.attr == "extend":
            items = [other for value in items for other in _items(value)]
        append_item(run, target.value, owner, items, frame)


def _items(value: Val) -> list[Val]:
    if value.kind == SEQ:
        return value.data if value.data is not None else list(value.dims or ())
    return [unknown(value.dep)]


def _return(run: Run, node: ast.Return, frame: Frame) -> None:
    value = run.eval(node.value, frame) if node.value is not None else const(None)
    frame.returns.append((value, frame.control if frame.control is not frame.entry else None))
    frame.ended = RETURNED


def _raise(run: Run, node: ast.Raise, frame: Frame) -> None:
    frame.ended = RAISED


def _leave(run: Run, node: ast.Break | ast.Continue, frame: Frame) -> None:
    if frame.exits:
        loop = frame.exits[-1]
        loop.places.append((frame.variables, frame.control if frame.control is not loop.entry else None))
    frame.ended = LEFT


def _with(run: Run, node: ast.With, frame: Frame) -> None:
    for item in node.items:
        value = run.eval(item.context_expr, frame)
        if item.optional_vars is not None:
            assign(run, item.optional_vars, value, frame, node)
    run.exec_block(node.body, frame)


def _try(run: Run, node: ast.Try, frame: Frame) -> None:
    before = dict(frame.variables)
    run.exec_block(node.body, frame)
    ended, after = frame.ended, frame.variables
    for handler in node.handlers:
        frame.variables, frame.ended = dict(before), ""
        if handler.name:
            frame.variables[handler.name] = unknown()
        run.exec_block(handler.body, frame)
        if not frame.ended and ended:
            after, ended = frame.variables, ""
        elif not frame.ended:
            for name, value in frame.variables.items():
                after[name] = merge(after[name], value) if name in after else value
    frame.variables, frame.ended = after, ended
    if not ended:
        run.exec_block(node.orelse, frame)
    if node.finalbody and not frame.ended:
        run.exec_block(node.finalbody, frame)


def _match(run: Run, node: ast.Match, frame: Frame) -> None:
    """match as a chain of ifs over its subject."""
    subject = node.subject
    if not isinstance(subject, ast.Name | ast.Attribute | ast.Tuple):
        frame.variables[SUBJECT] = run.eval(subject, frame)  # once, not for every case
        subject = ast.copy_location(ast.Name(SUBJECT), subject)
    run.exec_block(as_ifs(node, subject), frame)


def _import(run: Run, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
    import_names(run, node, frame)


def _delete(run: Run, node: ast.Delete, frame: Frame) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            frame.variables.pop(target.id, None)


def _global(run: Run, node: ast.Global, frame: Frame) -> None:
    frame.global_names = frame.global_names.union(node.names)


def _nonlocal(run: Run, node: ast.Nonlocal, frame: Frame) -> None:
    """Names of the function around: assigned there when this one returns is close enough, so they are shared now."""
    for name in node.names:
        scope = frame.outer
        while scope is not None and name not in scope.variables:
            scope = scope.outer
        if scope is not None:
            frame.variables[name] = scope.variables[name]


def _define(run: Run, node: ast.FunctionDef, frame: Frame) -> None:
    frame.variables[node.name] = define_function(run, node, frame)


def _class(run: Run, node: ast.ClassDef, frame: Frame) -> None:
    frame.variables[node.name] = define_class(run, node, frame)


STATEMENTS.update(
    {
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.Expr: _expression,
        ast.Return: _return,
        ast.Raise: _raise,
        ast.Break: _leave,
        ast.Continue: _leave,
        ast.With: _with,
        ast.Try: _try,
        ast.Match: _match,
        ast.Import: _import,
        ast.ImportFrom: _import,
        ast.Delete: _delete,
        ast.Global: _global,
        ast.Nonlocal: _nonlocal,
        ast.FunctionDef: _define,
        ast.AsyncFunctionDef: _define,
        ast.ClassDef: _class,
    }
)
