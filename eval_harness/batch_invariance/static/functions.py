"""Runs functions of the sources with abstract arguments: binding, defaults, closures, methods, objects."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.binding import named
from eval_harness.batch_invariance.static.merging import merge, merge_all
from eval_harness.batch_invariance.static.spreads import fill_parameters
from eval_harness.batch_invariance.static.state import (
    MAX_DEPTH,
    Class,
    Frame,
    Func,
    Instance,
    Run,
)
from eval_harness.batch_invariance.static.values import (
    MAP,
    OBJ,
    Dep,
    Val,
    const,
    seq,
    stronger,
    struct,
    unknown,
    with_dep,
)


def call_function(
    run: Run, func: Func, args: list[Val], kwargs: dict[str, Val], frame: Frame, node: Any, spread: Val | None = None
) -> Val:
    """What the function returns for these arguments; spread: *args or **kwargs whose contents are not known."""
    if run.depth >= MAX_DEPTH or run.stack.count(id(func.node)) > 1:
        return unknown(struct(strongest([*args, *kwargs.values()])))
    inner = Frame(func.module, func.closure, func)
    inner.kernel = frame.kernel
    inner.control = inner.entry = frame.control
    if func.positional:
        args = [*func.positional, *args]
    if func.keywords:
        kwargs = {**func.keywords, **kwargs}
    if func.bound is not None:
        args = [func.bound, *args]
    bind(run, func, args, kwargs, inner, spread)
    if func.node is None:
        return unknown()
    run.visited.add(id(func.node))
    run.stack.append(id(func.node))
    run.depth += 1
    try:
        if type(func.node) is ast.Lambda:
            return run.eval(func.node.body, inner)
        run.exec_block(func.node.body, inner)
    finally:
        run.depth -= 1
        run.stack.pop()
    return returned(inner)


def returned(frame: Frame) -> Val:
    """One value for all returns; where the batch chose the return, what differs follows it."""
    if frame.yields:  # a generator: some number of such items
        return seq(None, strongest(frame.yields), merge_all(frame.yields))
    if not frame.returns:
        return const(None)
    value, dep = frame.returns[0]
    control = dep
    for other, other_dep in frame.returns[1:]:
        control = stronger(control, other_dep)
        value = merge(value, other, control)
    return value


def bind(run: Run, func: Func, args: list[Val], kwargs: dict[str, Val], inner: Frame, spread: Val | None) -> None:
    """Arguments to parameters, in the new frame."""
    arguments: ast.arguments = func.node.args
    names = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    variables = inner.variables
    line = func.node.lineno
    kwargs = dict(kwargs)
    defaults = arguments.defaults
    first_default = len(names) - len(defaults)
    required = names[:first_default] if first_default >= len(args) else names
    args = fill_parameters(run, inner, args, required, frozenset(kwargs), line)
    for name, value in zip(names, args, strict=False):
        variables[name] = named(run, value, name, inner, line) if value.dep is not None else value
    if arguments.vararg is not None:
        variables[arguments.vararg.arg] = seq(args[len(names) :])
    for position, name in enumerate(names):
        if position < len(args):
            continue
        if name in kwargs:
            value = kwargs.pop(name)
            variables[name] = named(run, value, name, inner, line) if value.dep is not None else value
        elif spread is not None:
            variables[name] = spread
        elif position >= first_default:
            variables[name] = _default(run, func, defaults[position - first_default])
        else:
            variables[name] = _missing(name)
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        name = parameter.arg
        if name in kwargs:
            value = kwargs.pop(name)
            variables[name] = named(run, value, name, inner, line) if value.dep is not None else value
        elif spread is not None:
            variables[name] = spread
        else:
            variables[name] = _default(run, func, default) if default is not None else _missing(name)
    if arguments.kwarg is not None:
        variables[arguments.kwarg.arg] = Val(MAP, data=kwargs)


def _missing(name: str) -> Val:
    value = unknown()
    value.name = name
    return value


def _default(run: Run, func: Func, node: ast.expr) -> Val:
    frame = Frame(func.module, func.closure, func)
    return run.eval(node, frame)


def strongest(values: list[Val]) -> Dep | None:
    """The strongest dependency of any of the values, contents of containers included."""
    dep: Dep | None = None
    for value in values:
        if value.dep is not None:
            dep = stronger(dep, value.dep)
        elif value.kind == "seq":
            dep = stronger(dep, strongest(value.data if value.data is not None else list(value.dims or ())))
        elif value.kind == MAP:
            dep = stronger(dep, strongest(list(value.data.values())))
    return dep


def instantiate(run: Run, cls: Class, args: list[Val], kwargs: dict[str, Val], frame: Frame, node: Any) -> Val:
    """An object of a class of the sources."""
    instance = Instance(cls, {})
    value = Val(OBJ, data=instance)
    init = cls.method("__init__")
    if init is not None:
        bound = init.clone()
        bound.bound = value
        call_function(run, bound, args, kwargs, frame, node)
        return value
    fields = all_fields(cls)
    args = fill_parameters(run, frame, args, fields, frozenset(kwargs), getattr(node, "lineno", 1))
    for name, argument in zip(fields, args, strict=False):
        instance.attributes[name] = argument
    for name, argument in kwargs.items():
        instance.attributes[name] = argument
    if is_tuple(cls):
        ordered = {name: instance.attributes[name] for name in fields if name in instance.attributes}
        instance.attributes = ordered
    post = cls.method("__post_init__")
    if post is not None:
        bound = post.clone()
        bound.bound = value
        call_function(run, bound, [], {}, frame, node)
    return value


def all_fields(cls: Class) -> list[str]:
    fields: list[str] = []
    for base in cls.bases:
        fields.extend(all_fields(base))
    return [*fields, *(name for name in cls.fields if name not in fields)]


def is_tuple(cls: Class) -> bool:
    return any(isinstance(base, ast.Name | ast.Attribute) and "NamedTuple" in ast.dump(base) for base in cls.node.bases)


def choose_among(values: list[Val], index: Val, whole: Val) -> Val:
    """One of the values, the index not known: what differs between them follows the index."""
    dep = struct(index.dep)
    if not values:
        return unknown(stronger(dep, whole.dep))
    return with_dep(merge_all(values, dep), whole.dep)
