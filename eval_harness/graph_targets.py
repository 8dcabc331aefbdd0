"""Which functions, methods and attributes an IRGraph may name, and how a name becomes the function again.

A function is named by the module it is looked up in, and only modules of the list below are looked in, one attribute
deep (torch.ops.aten: packet and overload). It is a table look-up; nothing is imported or evaluated. The list keeps
out what is not computation (torch.save, torch.load, torch.compile, ...).
"""

from __future__ import annotations

import functools
import math
import operator
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.amp.autocast_mode
import torch.nn.functional
import torch.overrides

REPLACEMENT_PREFIX = "replacement:"
"""Target of the call that stands in for a match: "replacement:<rule>"."""

_MODULES: dict[str, Any] = {
    # earlier ones win where one function object has several names
    "torch": torch,
    "torch.nn.functional": torch.nn.functional,
    "torch._C._nn": torch._C._nn,  # type: ignore[attr-defined]
    "torch.functional": torch.functional,
    "torch._C._fft": torch._C._fft,  # type: ignore[attr-defined]
    "torch._C._linalg": torch._C._linalg,  # type: ignore[attr-defined]
    "torch._C._special": torch._C._special,  # type: ignore[attr-defined]
    "torch._VF": torch._C._VariableFunctions,  # type: ignore[attr-defined]
    "torch._C": torch._C,
    "torch.amp.autocast_mode": torch.amp.autocast_mode,
    "_operator": operator,
    "math": math,
}
# torch and its C modules: what carries the name of an ATen operator, what torch.overrides lists, and these
_EXTRA = {
    "torch.tensor", "torch.as_tensor", "torch.asarray", "torch.unique", "torch.unique_consecutive",
    "torch.sym_max", "torch.sym_min", "torch.sym_int", "torch.sym_float", "torch.sym_not", "torch.sym_ite",
    "torch.sym_sum", "torch._C._set_grad_enabled",
    "torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast",
}  # fmt: skip
_DENIED = {"from_file"}
"""ATen operators that reach outside the graph."""
# fmt: off
_OPERATORS = frozenset({
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "iadd", "iand", "ifloordiv", "ilshift", "imatmul",
    "imod", "imul", "index", "invert", "ior", "ipow", "irshift", "isub", "itruediv", "ixor", "le", "lshift", "lt",
    "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "setitem", "sub", "truediv", "truth",
    "xor",
})
_DUNDER_METHODS = frozenset({
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift", "lt",
    "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert", "radd", "rsub", "rmul", "rtruediv", "rfloordiv",
    "rmod", "rpow", "rmatmul", "rand", "ror", "rxor", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow",
    "iand", "ior", "ixor", "getitem", "setitem",
})
# fmt: on
_ATEN = re.compile(r"torch\.ops\.aten\.([A-Za-z_][A-Za-z0-9_]*)(?:\.([A-Za-z_][A-Za-z0-9_]*))?\Z", re.ASCII)
_DUNDER = re.compile(r"__[a-z0-9_]+__\Z")
_EXTRA_METHODS = {"numel", "index", "count", "bit_length", "is_integer"}
_EXTRA_ATTRIBUTES = {
    # fields of the named tuples that torch functions return
    "values", "indices", "eigenvalues", "eigenvectors", "solution", "residuals", "rank", "singular_values", "sign",
    "logabsdet", "Q", "R", "L", "U", "S", "Vh", "V", "LU", "pivots", "info", "output", "counts", "real", "imag",
}  # fmt: skip
_NOT_METHODS = re.compile(
    r"(_|backward|register_|numpy|tolist|data_ptr|storage$|storage_type|untyped_|share_memory|pin_memory|set_|apply_"
    r"|map_|map2_|requires_grad_|retain_grad|dlpack|as_subclass|module_load|resize)"
)
"""Beginnings of names that are no computation, or reach memory outside of the tensor."""


@functools.cache
def _overridable() -> frozenset[int]:
    # warnings: the list touches deprecated names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = torch.overrides.get_overridable_functions()
    return frozenset(
        id(function)
        for owner in (torch, torch.functional, torch.nn.functional)
        for function in functions.get(owner, ())
    )


@functools.cache
def _names_by_id() -> dict[int, str]:
    names: dict[int, str] = {}
    for module_name, module in _MODULES.items():
        for name in dir(module):
            value = getattr(module, name, None)
            if callable(value) and _is_accepted(module_name, name, value):
                names.setdefault(id(value), f"{module_name}.{name}")
    return names


def _is_accepted(module_name: str, name: str, value: Any) -> bool:
    if not callable(value) or isinstance(value, type) or _DUNDER.match(name) or name in _DENIED:
        return False
    if module_name == "math":
        return True
    if module_name == "_operator":
        return name in _OPERATORS
    if f"{module_name}.{name}" in _EXTRA or id(value) in _overridable():
        return True
    if module_name == "torch.nn.functional" and not name.startswith("_") and isinstance(value, types.FunctionType):
        # torch.overrides does not list all of them (hardswish)
        return value.__module__ == "torch.nn.functional"
    return isinstance(value, types.BuiltinFunctionType) and hasattr(torch.ops.aten, name)


def target_name(function: Callable[..., Any]) -> str | None:
    """The qualified name of a function, or None if no accepted module holds it."""
    if isinstance(function, (torch._ops.OpOverloadPacket, torch._ops.OpOverload)):
        name = str(function)
        return f"torch.ops.{name}" if name.startswith("aten.") else None
    found = _names_by_id().get(id(function))
    return found if found is not None and _resolve(found) is function else None


@functools.lru_cache(maxsize=4096)
def _resolve(name: str) -> Callable[..., Any] | None:
    aten = _ATEN.match(name)
    if aten is not None:
        packet = None if aten[1].startswith("__") or aten[1] in _DENIED else getattr(torch.ops.aten, aten[1], None)
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            return None
        if aten[2] is None:
            return packet
        return getattr(packet, aten[2]) if aten[2] in packet.overloads() else None
    module_name, _, attribute = name.rpartition(".")
    module = _MODULES.get(module_name)
    value = None if module is None else getattr(module, attribute, None)
    return value if _is_accepted(module_name, attribute, value) else None


def resolve_target(name: str) -> Callable[..., Any]:
    """The function of that qualified name. Raises ValueError if the list does not hold it."""
    function = _resolve(name)
    if function is None:
        raise ValueError(f"{name[:120]!r} is not a function that a graph may call")
    return function


def is_target_name(name: str) -> bool:
    return len(name) <= 200 and _resolve(name) is not None


def is_method_name(name: str) -> bool:
    """A method of torch.Tensor that computes, or one of a few of int, float and torch.Size."""
    if name in _EXTRA_METHODS or (_DUNDER.match(name) and name[2:-2] in _DUNDER_METHODS):
        return True
    return not _NOT_METHODS.match(name) and callable(getattr(torch.Tensor, name, None))


def is_attribute_name(name: str) -> bool:
    """A data attribute of torch.Tensor (shape, dtype, T, ...) or a field of a result tuple."""
    if name in _EXTRA_ATTRIBUTES:
        return True
    return not _NOT_METHODS.match(name) and hasattr(torch.Tensor, name) and not callable(getattr(torch.Tensor, name))
