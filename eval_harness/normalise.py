"""One form for calls that mean the same, so that a pattern matches however it spells a call.

A Python function is normalised by its signature, a builtin or a method by an ATen schema. Which overload applies is
decided by the types of the graph's node; the pattern's call is read with that overload, so patterns need no types.
Functions, methods and operators of one ATen name are one operation: `a + b`, `torch.add(a, b)`, `a.add(b)`.
Whether two literals are equal is decided with the type that the schema gives: see literals.py.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from eval_harness.graph_ir import IRNode, Ref
from eval_harness.graph_targets import resolve_target, target_name
from eval_harness.literals import Pair
from eval_harness.tracing import UNKNOWN, TensorMeta

_OPERATOR_TO_ATEN = {
    "truediv": "div", "itruediv": "div_", "floordiv": "floor_divide", "ifloordiv": "floor_divide_",
    "mod": "remainder", "imod": "remainder_", "and_": "bitwise_and", "iand": "bitwise_and_", "or_": "bitwise_or",
    "ior": "bitwise_or_", "xor": "bitwise_xor", "ixor": "bitwise_xor_", "invert": "bitwise_not", "inv": "bitwise_not",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "pos": "positive", "iadd": "add_", "isub": "sub_",
    "imul": "mul_", "ipow": "pow_", "add": "add", "sub": "sub", "mul": "mul", "pow": "pow", "matmul": "matmul",
    "neg": "neg", "abs": "abs", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne",
}  # fmt: skip
_ALIASES = {
    "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "not_equal": "ne", "concat": "cat",
    "concatenate": "cat", "clip": "clamp", "swapaxes": "transpose",
}  # fmt: skip
_CASTS = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
    "long": torch.int64, "int": torch.int32, "short": torch.int16, "bool": torch.bool,
}  # fmt: skip
_ARGUMENT_NAMES = {"self": ("input",), "dim": ("axis",), "keepdim": ("keepdims",), "other": ("x2",)}
"""Names that torch's Python parser accepts beside the schema's."""
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
"""Operations whose two tensor operands may match swapped: their result does not depend on the order, bit for bit."""
_HIDDEN = frozenset({"_stacklevel"})
"""Parameters that change no result."""
_MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2,
                   torch.channels_last_3d: 3}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def operation_of(op: str, target: str) -> tuple[str, str]:
    """What a node computes, apart from its arguments: ("aten", "add"), ("python", "torch.nn.functional.relu"), ..."""
    if op == "call_method":
        if target in _CASTS:
            return ("aten", "to")
        method = getattr(torch.Tensor, target, None)
        if method is not None and not isinstance(method, types.FunctionType) and hasattr(torch.ops.aten, target):
            return ("aten", _ALIASES.get(target, target))
        return ("method", target)
    if op != "call_function":
        return (op, target)
    module, _, name = target.rpartition(".")
    if module == "_operator":
        return ("aten", _OPERATOR_TO_ATEN[name]) if name in _OPERATOR_TO_ATEN else ("operator", name)
    if target.startswith("torch.ops.aten."):
        return ("aten", target.split(".")[3])
    function = resolve_target(target)
    if isinstance(function, types.BuiltinFunctionType) and hasattr(torch.ops.aten, name):
        return ("aten", _ALIASES.get(name, name))
    return ("python", target_name(function) or target)


def describe_operation(node: IRNode) -> str:
    kind, name = operation_of(node.op, node.target)
    return f".{name}" if kind in ("getattr", "method") else name.rsplit(".", 1)[-1]


def pair_arguments(graph_node: IRNode, pattern_node: IRNode, values: Mapping[str, Any]) -> list[list[Pair]] | str:
    """The ways in which the arguments of two calls of one operation correspond, or why they cannot.

    values: metadata of the graph's nodes (tracing.TracedGraph.values). Commutative operations have two ways.
    """
    kind, name = operation_of(graph_node.op, graph_node.target)
    if kind == "aten":
        graph_args, graph_kwargs = _arguments(graph_node)
        for schema in _schemas(name):
            bound = _bind(schema, graph_args, graph_kwargs, lambda ref: values.get(ref.name, UNKNOWN))
            if bound is not None:
                return _pair_by_schema(schema, bound, pattern_node, values, name)
    if kind == "python":
        return _pair_by_signature(resolve_target(graph_node.target), graph_node, pattern_node)
    if kind == "method" and isinstance(getattr(torch.Tensor, name, None), types.FunctionType):
        return _pair_by_signature(getattr(torch.Tensor, name), graph_node, pattern_node)
    return _pair_as_written(graph_node, pattern_node)


def _arguments(node: IRNode) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = list(node.args), dict(node.kwargs)
    if node.op == "call_method" and node.target in _CASTS:
        args.insert(1, _CASTS[node.target])
    swappable = node.op == "call_function" and node.target in ("_operator.add", "_operator.mul") and len(args) == 2
    if swappable and isinstance(args[1], Ref) and not isinstance(args[0], Ref):
        # 2 * x and x * 2 are one operation
        args.reverse()
    return args, kwargs


def _pair_by_schema(
    schema: Any, bound: dict[str, Any], pattern_node: IRNode, values: Mapping[str, Any], name: str
) -> list[list[Pair]] | str:
    args, kwargs = _arguments(pattern_node)
    pattern_bound = _bind(schema, args, kwargs, lambda ref: UNKNOWN)
    if pattern_bound is None:
        if len(args) == len(bound) and not kwargs:
            # as written, so that the message names the argument that does not fit
            names = [argument.name for argument in schema.arguments if argument.name in bound]
            return [[Pair(*item, "exact") for item in zip(names, bound.values(), args, strict=True)]]
        return f"the arguments in the pattern, {pattern_node}, do not fit {_schema_text(schema)}, which the graph calls"
    integral = not _is_floating(bound, values)
    pairs = []
    for argument in schema.arguments:
        if argument.name not in bound and argument.name not in pattern_bound:
            continue
        default = argument.default_value if argument.has_default_value() else None
        kind = _kind(argument)
        if "number" in kind and integral:
            kind = kind.replace("number", "exact number")
        pairs.append(
            Pair(argument.name, bound.get(argument.name, default), pattern_bound.get(argument.name, default), kind)
        )
    ways = [pairs]
    if name in COMMUTATIVE and len(pairs) >= 2 and pairs[0].kind == pairs[1].kind == "Tensor":
        first, second, *rest = pairs
        if all(pair.graph_value == 1 and pair.pattern_value == 1 for pair in rest):
            ways.append([
                Pair(first.label, first.graph_value, second.pattern_value, "Tensor"),
                Pair(second.label, second.graph_value, first.pattern_value, "Tensor"),
            ])  # fmt: skip
    return ways


def _pair_by_signature(
    function: Callable[..., Any], graph_node: IRNode, pattern_node: IRNode
) -> list[list[Pair]] | str:
    signature = _signature(function)
    if signature is None:
        return _pair_as_written(graph_node, pattern_node)
    sides = []
    for node in (graph_node, pattern_node):
        try:
            bound = signature.bind(*node.args, **node.kwargs)
        except TypeError as error:
            return f"{node} does not fit the signature of {graph_node.target}: {error}"
        bound.apply_defaults()
        sides.append(bound.arguments)
    return [
        [Pair(name, sides[0][name], sides[1][name], "python") for name in signature.parameters if name not in _HIDDEN]
    ]


@functools.lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _pair_as_written(graph_node: IRNode, pattern_node: IRNode) -> list[list[Pair]] | str:
    if len(graph_node.args) != len(pattern_node.args) or set(graph_node.kwargs) != set(pattern_node.kwargs):
        return f"it is called as {graph_node} in the graph, as {pattern_node} in the pattern"
    names = [f"argument {index}" for index in range(len(graph_node.args))]
    pairs = [Pair(*item, "exact") for item in zip(names, graph_node.args, pattern_node.args, strict=True)]
    pairs += [Pair(key, graph_node.kwargs[key], pattern_node.kwargs[key], "exact") for key in graph_node.kwargs]
    return [pairs]


@functools.lru_cache(maxsize=1024)
def _schemas(name: str) -> tuple[Any, ...]:
    packet = getattr(torch.ops.aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return ()
    return tuple(getattr(packet, overload)._schema for overload in packet.overloads())


def _schema_text(schema: Any) -> str:
    return str(schema).split(" -> ")[0].removeprefix("aten::")


def _kind(argument: Any) -> str:
    kind = str(argument.real_type)
    return kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind


def _bind(
    schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any], value_of: Callable[[Ref], Any]
) -> dict[str, Any] | None:
    """Schema argument name -> value, if the call fits the schema; lists and dtypes in one form."""
    given: dict[str, Any] = {}
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    args = _gather_sizes(positional, list(args))
    if len(args) > len(positional):
        return None
    for argument, value in zip(positional, args, strict=False):
        given[argument.name] = value
    remaining = dict(kwargs)
    for argument in schema.arguments:
        for name in (argument.name, *_ARGUMENT_NAMES.get(argument.name, ())):
            if name in remaining:
                if argument.name in given:
                    return None
                given[argument.name] = remaining.pop(name)
    if remaining:
        return None
    bound = {}
    for argument in schema.arguments:
        if argument.name not in given:
            if not argument.has_default_value():
                return None
            continue
        optional = str(argument.real_type).startswith("Optional[")
        value = given[argument.name]
        if not (value is None and optional):
            fits, value = _fit(_kind(argument), argument.N, value, value_of)
            if not fits:
                return None
        bound[argument.name] = value
    return bound


def _gather_sizes(positional: list[Any], args: list[Any]) -> list[Any]:
    """x.view(2, 3) is x.view((2, 3)): torch gathers trailing integers when the schema ends in its only list."""
    names = [argument.name for argument in positional]
    start = 1 if names[:1] == ["self"] else 0
    if len(positional) != start + 1 or len(args) <= start or not _kind(positional[start]).startswith("List[int]"):
        return args
    tail = args[start:]
    if len(tail) == 1 and isinstance(tail[0], (list, tuple)):
        return args
    if len(tail) == 1 and isinstance(tail[0], Ref):
        # one node: a size, or a whole list of them
        return args
    return [*args[:start], tail]


_NUMBERS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "number": (bool, int, float, complex),
    "complex": (int, float, complex),
    "bool": (bool,),
    "str": (str,),
}
_DTYPES_OF_TYPES = {float: torch.float64, int: torch.int64, bool: torch.bool}


def _fit(kind: str, length: int | None, value: Any, value_of: Callable[[Ref], Any]) -> tuple[bool, Any]:
    """Whether a value fits a schema type, and the value in the form in which it is compared."""
    if kind.startswith("List[") and not isinstance(value, Ref):
        inner = kind[5:-1]
        optional = inner.startswith("Optional[")
        inner = inner.removeprefix("Optional[").removesuffix("]") if optional else inner
        if isinstance(value, (int, float)) and not isinstance(value, bool) and (length is not None):
            value = [value] * length
        if not isinstance(value, (list, tuple)):
            return False, value
        fitted = [(True, None) if item is None and optional else _fit(inner, None, item, value_of) for item in value]
        return all(fits for fits, _ in fitted), [item for _, item in fitted]
    meta = value_of(value) if isinstance(value, Ref) else value
    if meta is UNKNOWN:
        return True, value
    if kind in _NUMBERS:
        is_bool = isinstance(meta, bool) and kind not in ("bool", "number")
        return isinstance(meta, _NUMBERS[kind]) and not is_bool, value
    if kind.startswith("List["):
        return isinstance(meta, (list, tuple)), value
    if kind == "Tensor":
        return isinstance(meta, TensorMeta), value
    if kind == "ScalarType":
        if isinstance(meta, type) and meta in _DTYPES_OF_TYPES:
            return True, _DTYPES_OF_TYPES[meta]
        return isinstance(meta, torch.dtype), value
    if kind == "Device":
        is_name = isinstance(meta, str) and meta.split(":")[0] in ("cpu", "cuda")
        return is_name or isinstance(meta, torch.device), value
    if kind == "MemoryFormat":
        return isinstance(meta, torch.memory_format), _MEMORY_FORMATS.get(meta, value)
    if kind == "Layout":
        return isinstance(meta, torch.layout), value
    return False, value


def _is_floating(bound: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether a tensor of the call has a floating dtype: then 2 and 2.0 promote to one dtype."""
    for value in bound.values():
        for item in value if isinstance(value, list) else [value]:
            meta = values.get(item.name, UNKNOWN) if isinstance(item, Ref) else None
            if isinstance(meta, TensorMeta) and (meta.dtype.is_floating_point or meta.dtype.is_complex):
                return True
    return False
