"""A slice -> the five files of a PassNet graph folder, as text.

Names are in_N and tmp_N, values are set to None after their last use, metas are tab-indented with three decimals, and
devices are written as upstream captured them ("cuda:0"), whatever machine this runs on.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from data.construct.metas import ValueRecord, graph_files, meta_class
from data.construct.subgraph import Slice
from data.graph import (
    Graph,
)

CAPTURED_DEVICE_CALL = "device(type='cuda', index=0)"
_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=",
}  # fmt: skip
_AUGMENTED = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=", operator.ifloordiv: "//=",
    operator.imod: "%=", operator.ipow: "**=", operator.iand: "&=", operator.ior: "|=", operator.ixor: "^=",
}  # fmt: skip
_PREFIX = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
_WHERE_FUNCTIONS_LIE = (
    "torch", "torch.nn.functional", "torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special",
    "torch.functional", "torch.Tensor",
)  # fmt: skip


def write_slice(part: Slice, name: str, *, model_name: str, family: str | None = None) -> Graph:
    """The slice as a Graph. Raises ValueError on a node that PassNet's format cannot say."""
    source = model_source(part)
    net = {"model_name": model_name} | ({} if family is None else {"family": family})
    stats = {**part.stats, **index_bounds(part)}
    metas = [meta_class(f"in_{index}", node.name, stats[node.name]) for index, node in enumerate(part.inputs)]
    return Graph(name, graph_files(source, metas, net))


def index_bounds(part: Slice) -> dict[str, ValueRecord]:
    """Indices of an embedding may be any row of its table, not only those that this run happened to use."""
    last_rows: dict[str, int] = {}
    for node in part.nodes:
        if getattr(node.target, "__name__", "") == "embedding" and len(node.args) > 1:
            index, table = (arg.name if isinstance(arg, torch.fx.Node) else "" for arg in node.args[:2])
            if index in part.stats and table in part.stats:  # both are inputs
                rows = part.stats[table].shape[0]
                last_rows[index] = min(rows - 1, last_rows.get(index, rows))
    return {
        name: part.stats[name].model_copy(update={"min_val": 0, "max_val": last_row})
        for name, last_row in last_rows.items()
    }


def model_source(part: Slice, folded: Mapping[torch.fx.Node, str] | None = None) -> str:
    """model.py of the slice, without a newline at its end, as upstream writes it.

    folded: text of the literal that stands for a node outside of the slice, such as a symbolic size.
    """
    names = {**(folded or {}), **{node: f"in_{index}" for index, node in enumerate(part.inputs)}}
    last_use = {producer: node for node in part.nodes for producer in node.all_input_nodes}
    kept, dead_after = set(part.outputs), defaultdict(list)
    for node in part.nodes:
        if node in last_use and node not in kept:
            dead_after[last_use[node]].append(node)
    lines = []
    for index, node in enumerate(part.nodes):
        names[node] = f"tmp_{index}"
        lines += _statement(node, names)
        if node in dead_after:
            lines.append(" = ".join([*(names[dead] for dead in dead_after[node]), "None"]))
    returned = ", ".join(names[node] for node in part.outputs) + ("," if len(part.outputs) == 1 else "")
    lines.append(f"return ({returned})")
    body = "".join(f"        {line}\n" for line in lines).removesuffix("\n")
    imports = "import torch\n" + ("\nfrom torch import device\n" if "device(" in body else "")
    arguments = ", ".join(["self", *(names[node] for node in part.inputs)])
    return f"{imports}\nclass GraphModule(torch.nn.Module):\n\n    def forward({arguments}):\n{body}"


def _statement(node: torch.fx.Node, names: dict[torch.fx.Node, str]) -> list[str]:
    args = [_literal(argument, names) for argument in node.args]
    kwargs = [f"{key} = {_literal(value, names)}" for key, value in node.kwargs.items()]
    call = ", ".join([*args, *kwargs])
    target = node.target
    if node.op == "call_method":
        receiver, *rest = args
        return [f"{names[node]} = {receiver}.{target}({', '.join([*rest, *kwargs])})"]
    if target in _AUGMENTED:
        return [f"{args[0]} {_AUGMENTED[target]} {args[1]}", f"{names[node]} = {args[0]}"]
    if target is operator.setitem:
        return [f"{args[0]}[{args[1]}] = {args[2]}"]
    if target is operator.getitem:
        return [f"{names[node]} = {args[0]}[{args[1]}]"]
    if target in _PREFIX:
        return [f"{names[node]} = {_PREFIX[target]}{args[0]}"]
    if target in _INFIX:
        # -2 ** x would be -(2 ** x)
        left = f"({args[0]})" if target is operator.pow and args[0].startswith("-") else args[0]
        return [f"{names[node]} = {left} {_INFIX[target]} {args[1]}"]
    if target is getattr:
        return [f"{names[node]} = {args[0]}.{node.args[1]}"]
    return [f"{names[node]} = {_function_path(target)}({call})"]


def _function_path(function: Any) -> str:
    """torch.nn.functional.layer_norm, torch.roll, torch._C._nn.gelu: the path by which the graph may call it."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{function}"
    name = function.__name__
    module = getattr(function, "__module__", None) or ""
    for where in (module, *_WHERE_FUNCTIONS_LIE):
        space: Any = torch
        for part in where.split(".")[1:]:
            space = getattr(space, part, None)
        if where.split(".")[0] == "torch" and getattr(space, name, None) is function:
            return f"{where}.{name}"
    raise ValueError(f"no path under torch for {function!r}; leave the slice out")


def _literal(value: Any, names: dict[torch.fx.Node, str]) -> str:
    match value:
        case torch.fx.Node():
            return names[value]
        case torch.dtype() | torch.layout() | torch.memory_format() | bool() | int() | complex() | str() | None:
            return repr(value)
        case float():
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        case torch.device():
            return CAPTURED_DEVICE_CALL
        case slice():
            return f"slice({', '.join(_literal(part, names) for part in (value.start, value.stop, value.step))})"
        case tuple():
            parts = [_literal(part, names) for part in value]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        case list():
            return f"[{', '.join(_literal(part, names) for part in value)}]"
        case _ if value is Ellipsis:
            return "..."
    raise ValueError(f"a {type(value).__name__} as an argument cannot be written in model.py; leave the slice out")
