"""Calls: evaluates the arguments and sends the call where it belongs (the sources, a kernel launch, a library)."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

from eval_harness.batch_invariance.static.attributes import attribute
from eval_harness.batch_invariance.static.branches import evaluate_ways
from eval_harness.batch_invariance.static.cuda_library import call_cuda
from eval_harness.batch_invariance.static.definitions import apply_heuristics, apply_tuning
from eval_harness.batch_invariance.static.functions import (
    call_function,
    instantiate,
    strongest,
)
from eval_harness.batch_invariance.static.launches import launch, with_template
from eval_harness.batch_invariance.static.loading import call_loader
from eval_harness.batch_invariance.static.methods import call_method
from eval_harness.batch_invariance.static.opaque import check_protected, unknown_call
from eval_harness.batch_invariance.static.python_library import call_python
from eval_harness.batch_invariance.static.spreads import spread_shape
from eval_harness.batch_invariance.static.state import Frame, Func, Instance, Run
from eval_harness.batch_invariance.static.tensor_library import KNOWN, call_tensor
from eval_harness.batch_invariance.static.tensor_reductions import first_tensor
from eval_harness.batch_invariance.static.triton_library import call_triton
from eval_harness.batch_invariance.static.values import (
    ANY,
    CLASS,
    FUNC,
    LIB,
    MAP,
    OBJ,
    SEQ,
    SHAPE,
    Val,
    struct,
    unknown,
)

_STANDARD = (
    "numpy",
    "np",
    "math",
    "torch",
    "triton",
    "builtins",
    "functools",
    "itertools",
    "operator",
    "bisect",
    "heapq",
    "std",
)
"""Libraries whose functions of numbers give numbers that follow their arguments."""


def call(run: Run, node: ast.Call, frame: Frame) -> Val:
    """func(args)."""
    target = node.func
    owner: Val | None = None
    if type(target) is ast.Attribute:
        owner = run.eval(target.value, frame)
        if owner.kind == OBJ and target.attr in _COPIES:
            args, kwargs, spread = arguments(run, node, frame)
            return _copied(owner, target.attr, kwargs)
        if owner.kind in (LIB, OBJ, CLASS) or (owner.kind == MAP and target.attr in owner.data):
            function = attribute(run, owner, target.attr, frame, target)
            if function.kind == ANY and owner.kind == OBJ:
                function = Val(LIB, data=f"?.{target.attr}")
        else:
            args, kwargs, spread = arguments(run, node, frame)
            if owner.kind == FUNC and target.attr == "apply":  # torch.autograd.Function
                return call_value(run, frame, owner, args, kwargs, node, spread)
            return call_method(run, frame, owner, target.attr, args, kwargs, node)
    else:
        function = run.eval(target, frame)
        if function.kind == ANY and function.name is None and isinstance(target, ast.Call):
            function = Val(LIB, data="?.result")
    args, kwargs, spread = arguments(run, node, frame)
    if function.kind == ANY:
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "?")
        function = Val(LIB, data=f"?.{name}")
    return call_value(run, frame, function, args, kwargs, node, spread)


_COPIES = ("_replace", "_asdict", "model_copy", "dict", "model_dump")


def _copied(owner: Val, name: str, kwargs: dict[str, Val]) -> Val:
    """dataclasses.replace, NamedTuple._replace, _asdict: the same fields, some of them new."""
    cls, attributes = owner.data.cls, owner.data.attributes
    fields = {**(cls.attributes if cls is not None else {}), **attributes}
    if name in ("_asdict", "asdict", "vars", "dict", "model_dump"):
        return Val(MAP, owner.dep, data=fields)
    changed = owner.copy()
    update = kwargs.get("update")
    more = update.data if update is not None and update.kind == MAP else kwargs
    changed.data = Instance(cls, {**attributes, **more})
    return changed


def arguments(run: Run, node: ast.Call, frame: Frame) -> tuple[list[Val], dict[str, Val], Val | None]:
    """(positional, by keyword, what an unknown *x or **x may hold)."""
    args: list[Val] = []
    kwargs: dict[str, Val] = {}
    spread: Val | None = None
    for part in node.args:
        if type(part) is ast.Starred:
            value = run.eval(part.value, frame)
            if value.kind == SEQ and value.data is not None:
                args.extend(value.data)
            elif value.kind == SHAPE:
                args.extend(spread_shape(value))
            else:
                spread = unknown(strongest([value]))
        else:
            args.append(run.eval(part, frame))
    for keyword in node.keywords:
        value = run.eval(keyword.value, frame)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif value.kind == MAP:
            for key, item in value.data.items():
                if isinstance(key, str):
                    kwargs[key] = item
                else:
                    spread = unknown(strongest([item]))
        elif value.kind == OBJ:
            kwargs.update(value.data.attributes)
        else:
            spread = unknown(struct(strongest([value])))
    return args, kwargs, spread


def call_value(
    run: Run,
    frame: Frame,
    function: Val,
    args: list[Val],
    kwargs: dict[str, Val],
    node: ast.Call,
    spread: Val | None = None,
) -> Val:
    """function(args) for a value."""
    kind = function.kind
    if kind == FUNC:
        return _call_functions(run, frame, function, args, kwargs, node, spread)
    if kind == "launch":
        return launch(run, frame, function, args, kwargs, node, spread)
    if kind == CLASS:
        return instantiate(run, function.data, args, kwargs, frame, node)
    if kind == LIB and isinstance(function.data, str):
        return _call_library(run, frame, function.data, args, kwargs, node)
    if kind == "tuner":
        return _apply_decorator(run, frame, function, args)
    if kind == OBJ and function.data.cls is not None:
        for name in ("__call__", "forward"):
            method = function.data.cls.method(name)
            if method is not None:
                bound = method.clone()
                bound.bound = function
                return call_function(run, bound, args, kwargs, frame, node, spread)
    return unknown_call(run, frame, "call", args, kwargs, node)


def _call_functions(
    run: Run,
    frame: Frame,
    function: Val,
    args: list[Val],
    kwargs: dict[str, Val],
    node: ast.Call,
    spread: Val | None,
) -> Val:
    functions: list[Func] = function.data
    if len(functions) == 1:
        func = functions[0]
        if frame.module.is_cuda or func.module.is_cuda:
            args = with_template(func, args, node)
        return call_function(run, func, args, kwargs, frame, node, spread)
    ways: list[Callable[[], Val]] = [
        functools.partial(call_function, run, func, args, kwargs, frame, node, spread) for func in functions
    ]
    return evaluate_ways(run, frame, node, struct(function.dep), ways)


def _apply_decorator(run: Run, frame: Frame, tuner: Val, args: list[Val]) -> Val:
    """triton.autotune(...)(kernel), triton.heuristics(...)(kernel)."""
    if not args or args[0].kind != FUNC:
        return args[0] if args else unknown()
    value = args[0].copy()
    value.data = [func.clone() for func in args[0].data]
    name, decorator = tuner.data
    for func in value.data:
        (apply_heuristics if name == "heuristics" else apply_tuning)(run, func, decorator, frame)
    return value


def _call_library(run: Run, frame: Frame, dotted: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    root, _, name = dotted.rpartition(".")
    if name in ("replace", "asdict", "vars") and args and args[0].kind == OBJ:
        return _copied(args[0], name, kwargs)
    if name in ("autotune", "heuristics") and "triton" in root:
        return Val("tuner", data=(name, node))
    if name == "jit" and args and args[0].kind == FUNC:
        for func in args[0].data:
            func.is_jit = True
        return args[0]
    if frame.module.is_cuda:
        result = call_cuda(run, frame, name, args, kwargs, node)
        if result is not None:
            return result
    if frame.kernel is not None and not root.startswith(("builtins", "math")):
        result = call_triton(run, frame, name, args, kwargs, node)
        if result is not None:
            return result
    is_torch = root.startswith(("torch", "F", "at", "c10", "cpp")) or root in ("?", "nn.functional")
    loader = call_loader(run, frame, name, args, kwargs, node)
    if loader is not None:
        return loader
    if is_torch and not root.startswith("cpp") and name in KNOWN and (first_tensor(args, kwargs) or root != "?"):
        return call_tensor(run, frame, name, args, kwargs, node, None)
    result = call_python(run, frame, name, args, kwargs, node)
    if result is not None:
        return result
    if root.startswith("builtins"):
        return unknown(struct(strongest(args)))
    if is_torch and root.startswith("torch"):
        return _torch_call(run, frame, dotted, name, args, kwargs, node)
    return unknown_call(run, frame, name, args, kwargs, node, passes_on=root.startswith(_STANDARD))


def _torch_call(
    run: Run, frame: Frame, dotted: str, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val:
    if ".ops." in dotted or first_tensor(args, kwargs) is None:
        check_protected(run, frame, name, kwargs, node)
        if ".ops." in dotted:
            return unknown_call(run, frame, name, args, kwargs, node)
    return call_tensor(run, frame, name, args, kwargs, node, None)
