"""Definitions: functions with their decorators (jit, autotune, heuristics, caches), classes, dataclasses."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.merging import merge
from eval_harness.batch_invariance.static.state import Class, Frame, Func, Run, Tuning
from eval_harness.batch_invariance.static.values import CLASS, FUNC, MAP, NC, SEQ, Val, num, unknown

_JIT = frozenset(("jit", "jit_func", "gluon_jit"))
_TUNERS = frozenset(("autotune", "libtuner", "fused_autotune", "autotune_with_cache"))
EXTRA = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu")
"""Of a configuration, these are not parameters of the kernel."""


def define_function(run: Run, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> Val:
    """A function of the sources; kernels carry what their decorators say."""
    func = Func(node.name, node, frame.module, frame if frame.func is not None else None)
    func.is_jit = getattr(node, "is_gpu", False)
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
        func.decorators.append(name)
        if name in _JIT:
            func.is_jit = True
        elif isinstance(decorator, ast.Call) and name in _TUNERS:
            apply_tuning(run, func, decorator, frame)
        elif isinstance(decorator, ast.Call) and name == "heuristics":
            apply_heuristics(run, func, decorator, frame)
        elif isinstance(decorator, ast.Call) and name == "partial" and decorator.args:
            inner = decorator.args[0]
            func.is_jit = func.is_jit or getattr(inner, "attr", getattr(inner, "id", "")) in _JIT
    return Val(FUNC, data=[func])


def apply_tuning(run: Run, func: Func, node: ast.Call, frame: Frame) -> None:
    """@triton.autotune(configs, key) onto the kernel."""
    arguments = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    for name, value in zip(("configs", "key"), node.args, strict=False):
        arguments.setdefault(name, value)
    configs = run.eval(arguments["configs"], frame) if "configs" in arguments else unknown()
    key = run.eval(arguments["key"], frame) if "key" in arguments else unknown()
    names: tuple[str, ...] = ()
    if key.kind == SEQ and key.data is not None:
        names = tuple(item.const for item in key.data if isinstance(item.const, str))
    tuning = Tuning(names, _varying(configs), node.lineno)
    pruning = arguments.get("prune_configs_by")
    if pruning is not None and tuning.varying != {}:
        tuning.prune = run.eval(pruning, frame)
    func.tuning = [*func.tuning, tuning]


def _varying(configs: Val) -> dict[str, Val] | None:
    """Every meta-parameter that a configuration sets; a constant only where all agree."""
    if configs.kind != SEQ:
        return None
    items = configs.data if configs.data is not None else list(configs.dims or ())
    if not items:
        return None if configs.data is None else {}
    merged: dict[str, Val] = {}
    for position, item in enumerate(items):
        if item.kind != MAP:
            return None
        for name, value in item.data.items():
            known = merged.get(name)
            if known is None:
                merged[name] = value if position == 0 or value.const is NC else num(elem=value.elem)
            else:
                merged[name] = merge(known, value)
        for name in merged.keys() - item.data.keys():
            merged[name] = num()
    return merged


def configuration(args: list[Val], kwargs: dict[str, Val]) -> Val:
    """triton.Config(meta, num_warps=..., ...) as one dictionary."""
    meta = args[0] if args else kwargs.get("kwargs", Val(MAP, data={}))
    if meta.kind != MAP:
        return unknown()
    data = dict(meta.data)
    for name, value in zip(("num_warps", "num_stages"), args[1:], strict=False):
        data[name] = value
    data.update({name: value for name, value in kwargs.items() if name in EXTRA})
    return Val(MAP, meta.dep, data=data)


def apply_heuristics(run: Run, func: Func, node: ast.Call, frame: Frame) -> None:
    """@triton.heuristics(values) onto the kernel."""
    values = run.eval(node.args[0], frame) if node.args else unknown()
    if not node.args and node.keywords:
        values = run.eval(node.keywords[0].value, frame)
    if values.kind == MAP:
        func.heuristics = {**func.heuristics, **{str(name): value for name, value in values.data.items()}}


def define_class(run: Run, node: ast.ClassDef, frame: Frame) -> Val:
    """A class of the sources."""
    inner = Frame(frame.module, frame if frame.func is not None else None, frame.func)
    methods: dict[str, Func] = {}
    fields: list[str] = []
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            value = define_function(run, statement, frame)
            func: Func = value.data[0]
            func.owner = node.name
            methods[statement.name] = func
            inner.variables[statement.name] = value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            fields.append(statement.target.id)
            if statement.value is not None:
                inner.variables[statement.target.id] = _field_default(run, statement.value, inner)
        else:
            run.exec_block([statement], inner)
    bases = [run.eval(base, frame) for base in node.bases]
    known: list[Any] = [base.data for base in bases if base.kind == CLASS]
    attributes = {name: value for name, value in inner.variables.items() if name not in methods}
    return Val(CLASS, data=Class(node.name, node, frame.module, methods, attributes, known, fields))


def _field_default(run: Run, node: ast.expr, frame: Frame) -> Val:
    """The default of a dataclass field: field(default=...) and field(default_factory=...) too."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "field":
        for keyword in node.keywords:
            if keyword.arg == "default":
                return run.eval(keyword.value, frame)
        return unknown()
    return run.eval(node, frame)
