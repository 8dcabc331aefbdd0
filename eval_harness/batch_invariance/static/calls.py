"""Calls: evaluates the arguments and sends the call where it belongs (the sources, a kernel launch, a library)."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.attributes import as_tensor, attribute
from eval_harness.batch_invariance.static.branches import evaluate_ways
from eval_harness.batch_invariance.static.cuda_library import call_cuda
from eval_harness.batch_invariance.static.definitions import apply_heuristics, apply_tuning
from eval_harness.batch_invariance.static.functions import (
    call_function,
    choose_among,
    find_method,
    instantiate,
    strongest,
)
from eval_harness.batch_invariance.static.launches import launch, with_template
from eval_harness.batch_invariance.static.loading import call_loader
from eval_harness.batch_invariance.static.python_library import call_python
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Func, Run
from eval_harness.batch_invariance.static.tensor_library import KNOWN, call_tensor, first_tensor
from eval_harness.batch_invariance.static.triton_library import call_triton, descriptor_load
from eval_harness.batch_invariance.static.values import (
    ANY,
    BLOCK,
    CLASS,
    FUNC,
    LIB,
    MAP,
    NC,
    NUM,
    OBJ,
    PTR,
    SEQ,
    SHAPE,
    TENSOR,
    Val,
    const,
    guess,
    merge,
    num,
    seq,
    struct,
    unknown,
    with_dep,
)

_ORDER_FREE = frozenset(
    "relu gelu silu sigmoid tanh exp log sqrt rsqrt pow square clamp neg sign to type float half bfloat16 synchronize"
    " is_available current_device get_device_properties get_device_capability device stream Stream current_stream empty_cache"
    " set_device no_grad inference_mode compile register_buffer register_parameter Parameter warn warning info debug"
    " get finfo iinfo dtype is_contiguous is_cuda assert_close isfinite isnan where masked_fill gather scatter"
    " driver get_current_target cdiv super mark_non_differentiable save_for_backward".split()
)


_STANDARD = ("numpy", "np", "math", "torch", "triton", "builtins", "functools", "itertools", "operator", "bisect", "std")
"""Libraries whose functions of numbers give numbers that follow their arguments."""


def call(run: Run, node: ast.Call, frame: Frame) -> Val:
    """func(args)."""
    target = node.func
    owner: Val | None = None
    if type(target) is ast.Attribute:
        owner = run.eval(target.value, frame)
        if owner.kind in (LIB, OBJ, CLASS) or (owner.kind == MAP and target.attr in owner.data):
            function = attribute(run, owner, target.attr, frame, target)
            if function.kind == ANY and owner.kind == OBJ:
                function = Val(LIB, data=f"?.{target.attr}")
        else:
            args, kwargs, spread = arguments(run, node, frame)
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
                args.append(value)
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
            method = find_method(function.data.cls, name)
            if method is not None:
                bound = method.clone()
                bound.bound = function
                return call_function(run, bound, args, kwargs, frame, node, spread)
    return _unknown_call(run, frame, "call", args, kwargs, node)


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
    return evaluate_ways(
        run,
        frame,
        node,
        struct(function.dep),
        [lambda func=func: call_function(run, func, args, kwargs, frame, node, spread) for func in functions],
    )


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
    return _unknown_call(run, frame, name, args, kwargs, node, passes_on=root.startswith(_STANDARD))


def _torch_call(
    run: Run, frame: Frame, dotted: str, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val:
    if ".ops." in dotted or first_tensor(args, kwargs) is None:
        _check_protected(run, frame, name, kwargs, node)
        if ".ops." in dotted:
            return _unknown_call(run, frame, name, args, kwargs, node)
    return call_tensor(run, frame, name, args, kwargs, node, None)


def _unknown_call(
    run: Run,
    frame: Frame,
    name: str,
    args: list[Val],
    kwargs: dict[str, Val],
    node: ast.Call,
    *,
    passes_on: bool = False,
) -> Val:
    """A function that the sources do not hold: it may add anything up in any order."""
    tensor = first_tensor(args, kwargs)
    _check_protected(run, frame, name, kwargs, node)
    is_plain = name in _ORDER_FREE or (frame.module.is_cuda and (name.startswith("cuda") or name.isupper()))
    if tensor is not None and frame.kernel is None and not is_plain:
        run.events[("call", name)] = None
        run.leave_open(frame, node.lineno, f"{name}: not among these sources")
    if tensor is not None:
        value = tensor.copy()
        value.dims = None
        return value
    dep = strongest([*args, *kwargs.values()])
    return unknown(struct(dep) if passes_on else guess(dep))


def _check_protected(run: Run, frame: Frame, name: str, kwargs: dict[str, Val], node: ast.Call) -> None:
    """A protected parameter handed to a function that cannot be looked into."""
    for key, value in kwargs.items():
        if value.dep is None or value.kind == TENSOR:
            continue
        parameter = run.parameters.get(key)
        if parameter is not None and parameter.is_protected:
            line = next(keyword.value.lineno for keyword in node.keywords if keyword.arg in (key, None))
            dep = value.dep.step(frame.module.file, line + frame.module.first_line, key)
            report(run, frame, line, Mechanism.WORK_PARTITIONING, "opaque", dep, f"{key} of {name}")


def call_method(
    run: Run, frame: Frame, owner: Val, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val:
    """owner.name(args) where the owner is no module or object."""
    kind = owner.kind
    if frame.kernel is not None and kind in (BLOCK, PTR, NUM):
        if name in ("load", "gather") and kind == PTR:
            return descriptor_load(owner, args, node)
        if name in ("store", "scatter", "atomic_add"):
            return unknown()
        if name == "to" and args:
            return call_triton(run, frame, "cast", [owner, *args], kwargs, node) or owner
        result = call_triton(run, frame, name, [owner, *args], kwargs, node)
        return result if result is not None else owner
    if kind == ANY and name in _TENSOR_ONLY:
        owner = as_tensor(owner)
        kind = TENSOR
    if kind == TENSOR:
        return call_tensor(run, frame, name, args, kwargs, node, owner)
    if kind == SHAPE:
        if name == "numel":
            return sources.count_elements(frame, owner.data[0], node.lineno)
        return num(elem="i")
    if kind == MAP:
        return _map_method(owner, name, args)
    if kind == SEQ:
        return _seq_method(owner, name, args)
    if kind == FUNC and name == "apply":
        return call_value(run, frame, owner, args, kwargs, node)
    if kind in (NUM, ANY):
        if name in ("bit_length", "item", "sum", "max", "min"):
            result = call_python(run, frame, "int" if name == "item" else name, [owner], {}, node)
            return result if result is not None else unknown(owner.dep)
        if name in ("numel", "size") and kind == ANY:
            return call_tensor(run, frame, name, args, kwargs, node, as_tensor(owner))
        if first_tensor(args, kwargs) is not None or kwargs:
            return _unknown_call(run, frame, name, args, kwargs, node)
    dep = strongest([owner, *args])
    return unknown(guess(dep) if kind == ANY and owner.dep is None else struct(dep))


_TENSOR_ONLY = frozenset(
    "size numel view reshape permute transpose contiguous tolist unsqueeze squeeze flatten expand chunk sum mean amax"
    " float half bfloat16 new_empty new_zeros data_ptr stride nelement matmul softmax dim unbind max min item cumsum"
    " to split".split()
)


def _map_method(owner: Val, name: str, args: list[Val]) -> Val:
    values = list(owner.data.values())
    if name in ("get", "pop", "setdefault") and args:
        key = args[0].const
        if key is NC and args[0].kind == SEQ and args[0].data is not None:
            parts = [item.const for item in args[0].data]
            key = tuple(parts) if NC not in parts else NC
        default = args[1] if len(args) > 1 else const(None)
        if key is not NC and isinstance(key, int | float | str | bool | tuple | None):
            if key in owner.data:
                found = owner.data[key]
                return with_dep(found, owner.dep) if found.kind == NUM else found
            if not any(isinstance(name, tuple) and name[:1] == ("key",) for name in owner.data):
                return default
        source = args[0] if args[0].kind != SEQ else num(strongest([args[0]]))
        return choose_among([*values, default], source, owner)
    if name == "items":
        pairs = [seq([_key(key), value]) for key, value in owner.data.items()]
        return seq(pairs, owner.dep)
    if name == "values":
        return seq(values, owner.dep)
    if name == "keys":
        return seq([_key(key) for key in owner.data], owner.dep)
    return owner if name == "copy" else unknown(owner.dep)


def _key(key: Any) -> Val:
    if isinstance(key, tuple):
        return unknown() if key[:1] == ("key",) else seq([const(part) for part in key])
    return const(key)


def _seq_method(owner: Val, name: str, args: list[Val]) -> Val:
    if name in ("index", "count"):
        return num(struct(strongest([owner, *args])), "i")
    if name in ("pop", "popleft"):
        items = owner.data if owner.data is not None else list(owner.dims or ())
        value = items[0] if items else unknown(owner.dep)
        for item in items[1:]:
            value = merge(value, item)
        return value
    return owner if name in ("copy", "numpy") else unknown(owner.dep)
