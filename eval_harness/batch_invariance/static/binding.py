"""Assignments: names, tuples, attributes, items; a step of the dependency path is added where a name takes a value."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.arithmetic import OWN
from eval_harness.batch_invariance.static.buffers import note_store
from eval_harness.batch_invariance.static.merging import element, merge, merge_all
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import (
    ANY,
    CLASS,
    MAP,
    NC,
    NUM,
    OBJ,
    PTR,
    SEQ,
    SHAPE,
    TENSOR,
    Val,
    num,
    seq,
    stronger,
    struct,
    unknown,
    with_dep,
)


def assign(run: Run, target: ast.expr, value: Val, frame: Frame, node: ast.AST) -> None:
    """target = value."""
    kind = type(target)
    if kind is ast.Name:
        name = target.id  # type: ignore[attr-defined]
        value = frame.variables[name] = named(run, value, name, frame, node.lineno)  # type: ignore[attr-defined]
        if name in frame.global_names:
            frame.module.variables[name] = value
    elif kind is ast.Tuple or kind is ast.List:
        _unpack(run, target.elts, value, frame, node)  # type: ignore[attr-defined]
    elif kind is ast.Subscript:
        _set_item(run, target, value, frame, node)  # type: ignore[arg-type]
    elif kind is ast.Attribute:
        _set_attribute(run, target, value, frame, node)  # type: ignore[arg-type]
    elif kind is ast.Starred:
        assign(run, target.value, value, frame, node)  # type: ignore[attr-defined]


def named(run: Run, value: Val, name: str, frame: Frame, line: int) -> Val:
    """The value under its new name."""
    dep, pos = value.dep, value.pos
    if frame.kernel is None and value.kind == NUM and value.const is NC:
        if value.name == sources.SIZE:
            return _named_size(run, value, name, frame, line)
        if dep is None and value.name == "<attribute>" and sources.is_symbol(run, name):
            return sources.rows(frame, line, name)
    if dep is None and pos is None:
        return value
    line += frame.module.first_line
    new_dep = dep.step(frame.module.file, line, name) if dep is not None else None
    if new_dep is dep:
        return value
    value = value.copy()
    value.dep = new_dep
    if value.name != OWN:
        value.name = name
    return value


def _named_size(run: Run, value: Val, name: str, frame: Frame, line: int) -> Val:
    """batch = x.shape[1]; K = x.shape[0]: what the author calls a size says what it counts.

    value.data: True for the dimension that rows are taken to lie along, False for another, None of a weight.
    """
    is_named = name in sources.CACHE_BATCH if value.data is None else sources.is_symbol(run, name)
    if is_named or (value.data and sources.may_be_rows(name, None)):
        return sources.rows(frame, line, name)
    return num(elem="i")


def _unpack(run: Run, targets: list[ast.expr], value: Val, frame: Frame, node: ast.AST) -> None:
    items = _items_for(run, targets, value, frame, node.lineno)  # type: ignore[attr-defined]
    for target, item in zip(targets, items, strict=True):
        assign(run, target, item, frame, node)


def _items_for(run: Run, targets: list[ast.expr], value: Val, frame: Frame, line: int) -> list[Val]:
    count = len(targets)
    names = [target.id if isinstance(target, ast.Name) else None for target in targets]
    starred = next((position for position, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    if value.kind == SHAPE:
        tensor, start, _ = value.data
        if starred is None:
            return sources.sizes_named(run, frame, tensor, names, line, start)
        lead = Val(SHAPE, data=(tensor, start + starred, -(count - 1 - starred)))
        before = sources.sizes_named(run, frame, tensor, names[:starred], line, start) if starred else []
        return [*before, lead, *(num(elem="i") for _ in range(count - 1 - starred))]
    if value.kind == SEQ and value.data is not None:
        items = value.data
        spread = next((position for position, item in enumerate(items) if item.name == "*"), None)
        if spread is not None:  # B, T, H, K, V = *k.shape, v.shape[-1]
            rank = count - (len(items) - 1)
            tensor, start, _ = items[spread].data
            sizes = sources.sizes_named(run, frame, tensor, names[spread : spread + rank], line, start)
            items = [*items[:spread], *sizes, *items[spread + 1 :]]
        if starred is not None and len(items) >= count - 1:
            tail = count - 1 - starred
            middle = seq(items[starred : len(items) - tail])
            items = [*items[:starred], middle, *items[len(items) - tail :]]
        if len(items) == count:
            return [with_dep(item, value.dep) for item in items] if value.dep is not None else items
        return [with_dep(element(value), value.dep)] * count
    if value.kind == SEQ:
        return [with_dep(element(value), value.dep)] * count
    if value.kind == TENSOR:
        part = value.copy()
        part.dims = value.dims[1:] if value.dims else None
        return [part] * count
    if value.kind == OBJ and value.data.attributes:
        attributes = list(value.data.attributes.values())
        if len(attributes) == count:
            return attributes
    return [Val(ANY if value.kind == ANY else NUM, value.dep)] * count


def _set_item(run: Run, target: ast.Subscript, value: Val, frame: Frame, node: ast.AST) -> None:
    container = run.eval(target.value, frame)
    if container.kind == PTR:
        note_store(run, frame, container, value, node.lineno)  # type: ignore[attr-defined]
        return
    key = run.eval(target.slice, frame)
    if container.kind == MAP:
        items = dict(container.data)
        if key.const is not NC and not isinstance(key.const, bytes):
            items[key.const] = value
            dep = container.dep
        else:
            items = {name: merge(item, value, struct(key.dep)) for name, item in items.items()}
            items[("key", len(items))] = value
            dep = stronger(container.dep, struct(key.dep))
        changed = Val(MAP, dep, data=items)
    elif container.kind == SEQ:
        if (
            container.data is not None
            and isinstance(key.const, int)
            and -len(container.data) <= key.const < len(container.data)
        ):
            items_list = list(container.data)
            items_list[key.const] = value
            changed = seq(items_list, container.dep)
        else:
            changed = seq(None, container.dep, merge_all([element(container), value], struct(key.dep)))
    elif container.kind == TENSOR and value.dep is not None and value.dep.mode == 3 and value.kind != TENSOR:
        changed = with_dep(container, value.dep.step(frame.module.file, node.lineno + frame.module.first_line))  # type: ignore[attr-defined]
    else:
        return
    _rebind(run, target.value, changed, frame)


def _rebind(run: Run, target: ast.expr, value: Val, frame: Frame) -> None:
    """The changed container in place of the old one."""
    if isinstance(target, ast.Name):
        scope: Frame | None = frame
        while scope is not None:
            if target.id in scope.variables:
                scope.variables[target.id] = value
                return
            scope = scope.outer
        frame.module.variables[target.id] = value
    elif isinstance(target, ast.Attribute):
        owner = run.eval(target.value, frame)
        if owner.kind == OBJ:
            owner.data.attributes[target.attr] = value


def _set_attribute(run: Run, target: ast.Attribute, value: Val, frame: Frame, node: Any) -> None:
    owner = run.eval(target.value, frame)
    if owner.kind not in (OBJ, CLASS):
        return
    value = named(run, value, target.attr, frame, node.lineno)
    attributes = owner.data.attributes
    if frame.control is not None and target.attr in attributes:
        value = merge(attributes[target.attr], value, frame.control)
    attributes[target.attr] = value


def append_item(run: Run, target: ast.expr, container: Val, items: list[Val], frame: Frame) -> None:
    """container.append(item) where `target` names the container."""
    if container.kind == SEQ and container.data is not None and not frame.exits and len(container.data) < 64:
        changed = seq(container.data + items, container.dep)
    else:
        known = [element(container)] if container.data or container.dims else []
        changed = seq(None, stronger(container.dep, frame.control), merge_all([*known, *items]) if items else unknown())
    _rebind(run, target, changed, frame)
