"""What an attribute gives: sizes of tensors, fields of objects, members of modules."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.functions import call_function
from eval_harness.batch_invariance.static.kernel_values import num_programs, num_threads, program_id
from eval_harness.batch_invariance.static.state import Frame, Instance, Module, Run
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
    num,
    seq,
    unknown,
)

_SAME = frozenset(("data", "values", "real", "imag", "grad"))
_AXES = {"x": 0, "y": 1, "z": 2}


def attribute(run: Run, owner: Val, name: str, frame: Frame, node: ast.AST) -> Val:
    """owner.name."""
    kind = owner.kind
    if kind == LIB:
        return _member(run, owner.data, name, frame)
    if kind == OBJ:
        return _field(run, owner, name, frame, node)
    if name == "shape" and kind in (TENSOR, ANY, NUM, PTR):
        return Val(SHAPE, data=(as_tensor(owner), 0, None))
    if kind == TENSOR:
        return _of_tensor(owner, name)
    if kind == BLOCK:
        if name == "T":
            return _reversed(owner)
        if name == "shape":
            return seq(list(owner.dims)) if owner.dims is not None else unknown()
        return owner if name == "value" else unknown()
    if kind == MAP and name in owner.data:
        return owner.data[name]
    if kind == CLASS:
        return _of_class(owner, name)
    if kind == SEQ and owner.data is not None and name in _AXES and _AXES[name] < len(owner.data):
        return owner.data[_AXES[name]]  # dim3
    return _of_unknown(run, owner, name, frame, node)


def as_tensor(value: Val) -> Val:
    """The value taken as a tensor: it has a shape."""
    if value.kind == TENSOR:
        return value
    if value.kind == PTR and value.data is not None:
        return value.data
    name = value.name or ""
    tensor = sources.new_tensor(name if name[:1] != "<" else "")
    tensor.dep = value.dep
    return tensor


def _of_tensor(owner: Val, name: str) -> Val:
    if name in ("T", "mT"):
        return _reversed(owner)
    if name in ("ndim", "dtype", "device", "is_cuda", "layout"):
        value = num(elem="i")
        value.name = "<clean>"
        if name == "ndim" and owner.dims is not None:
            return const(len(owner.dims))
        return value
    if name in _SAME:
        return owner
    return unknown()


def _reversed(owner: Val) -> Val:
    value = owner.copy()
    value.dims = owner.dims[::-1] if owner.dims is not None else None
    if owner.batch is not None:
        value.batch = len(owner.dims) - 1 - owner.batch if owner.dims is not None else 1 - min(owner.batch, 1)
    return value


def _member(run: Run, library: Any, name: str, frame: Frame) -> Val:
    if isinstance(library, Module):
        return library.variables.get(name, unknown())
    if library.startswith("gpu."):
        return _gpu_size(library, name, frame)
    return Val(LIB, data=f"{library}.{name}")


def _gpu_size(library: str, name: str, frame: Frame) -> Val:
    """threadIdx, blockIdx, blockDim, gridDim of CUDA."""
    axis = _AXES.get(name, 0)
    if library.endswith("blockIdx"):
        return program_id(frame, axis)
    if library.endswith("gridDim"):
        return num_programs(frame, axis)
    if library.endswith("blockDim"):
        return num_threads(frame, axis)
    value = num(elem="i")
    value.index = True
    return value


def _field(run: Run, owner: Val, name: str, frame: Frame, node: Any) -> Val:
    instance = owner.data
    value = instance.attributes.get(name)
    if value is not None:
        return value
    if instance.cls is not None:
        found = instance.cls.method(name)
        if found is not None:
            if "property" in found.decorators or "cached_property" in found.decorators:
                bound = found.clone()
                bound.bound = owner
                return call_function(run, bound, [], {}, frame, node)
            bound = found.clone()
            if "staticmethod" not in found.decorators:
                bound.bound = owner
            return Val(FUNC, data=[bound])
        inherited = instance.cls.attribute(name)
        if inherited is not None:
            return inherited
    return _of_unknown(run, owner, name, frame, node)


def _of_class(owner: Val, name: str) -> Val:
    """Class.name: a class variable, a method without an object, or a member of an Enum."""
    value = owner.data.attribute(name)
    if value is not None:
        return value
    method = owner.data.method(name)
    if method is None:
        return _applied(owner) if name == "apply" else unknown()
    if "classmethod" in method.decorators:
        method = method.clone()
        method.bound = owner
    return Val(FUNC, data=[method])


def _applied(owner: Val) -> Val:
    """Function.apply of a torch.autograd.Function: its forward, with a context to keep things in."""
    forward = owner.data.method("forward")
    if forward is None:
        return unknown()
    if owner.data.method("setup_context") is None:
        forward = forward.clone()
        forward.bound = Val(OBJ, data=Instance(None, {}))
    return Val(FUNC, data=[forward])


def _of_unknown(run: Run, owner: Val, name: str, frame: Frame, node: Any) -> Val:
    """config.batch_size, metadata.seq_lens: what the name says is all that is known."""
    if owner.dep is None and frame.kernel is None and sources.is_symbol(run, name):
        value = num(sources.source(frame, node.lineno, name, sources.mode_of(name)), "i")
        value.name = name
        return value
    value = unknown(owner.dep)
    if owner.const is not NC:
        return value
    value.name = name
    if owner.kind == NUM:
        value.kind = ANY
    return value
