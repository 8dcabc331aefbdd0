"""Running an IRGraph: node by node (metadata, clocks), or as a torch.fx.GraphModule (what is evaluated).

Both processes build their module here, so that the candidate and the reference pay the same for being called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from eval_harness.graph_ir import IRGraph, IRNode
from eval_harness.graph_targets import REPLACEMENT_PREFIX, resolve_target
from eval_harness.graph_values import map_refs

_CUDA_NAME = re.compile(r"cuda(:[0-9]+)?\Z", re.ASCII)


def on_device(node: IRNode, device: torch.device | None) -> IRNode:
    """The node with "cuda", in whatever spelling, replaced by `device` (None leaves it).

    trace_graph spells the machine's device "cuda", as data.model_check.load_graph_module maps it; a "cpu" that is left
    means the CPU.
    """
    if device is None or node.op not in ("call_function", "call_method"):
        return node

    def literal(value: Any) -> Any:
        is_cuda = isinstance(value, torch.device) and value.type == "cuda"
        return device if is_cuda or (isinstance(value, str) and _CUDA_NAME.match(value)) else value

    args = map_refs(node.args, lambda ref: ref, literal)
    kwargs = map_refs(dict(node.kwargs), lambda ref: ref, literal)
    return IRNode(node.name, node.op, node.target, args, kwargs, node.where)


def run_node(node: IRNode, values: Mapping[str, Any]) -> Any:
    """Execute one node that is neither placeholder nor replacement, on the values of earlier nodes."""
    args = map_refs(node.args, lambda ref: values[ref.name])
    if node.op == "output":
        return args[0]
    kwargs = map_refs(dict(node.kwargs), lambda ref: values[ref.name])
    if node.op == "call_function":
        return resolve_target(node.target)(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return getattr(args[0], node.target)


class _Checked:
    """A replacement of a rule whose pattern returns a tuple: says plainly when the function does not."""

    def __init__(self, rule: str, function: Callable[..., Any], num_outputs: int) -> None:
        self.rule, self.function, self.num_outputs = rule, function, num_outputs

    def __call__(self, *args: Any) -> Any:
        result = self.function(*args)
        if type(result) not in (tuple, list):
            if self.num_outputs == 1:
                return (result,)
            raise TypeError(
                f"rule {self.rule}: the pattern returns {self.num_outputs} values, the replacement returned one "
                f"{type(result).__name__}; return a tuple"
            )
        if len(result) != self.num_outputs:
            raise TypeError(
                f"rule {self.rule}: the pattern returns {self.num_outputs} values, the replacement {len(result)}"
            )
        return result


def build_module(
    ir: IRGraph,
    replacements: Mapping[str, Callable[..., Any]],
    *,
    device: torch.device | str | None = None,
    num_outputs: Mapping[str, int] | None = None,
) -> torch.fx.GraphModule:
    """A plain GraphModule with generated code, called with the graph's inputs in order.

    replacements: rule name -> function, for targets "replacement:<rule>". device: takes the place of "cuda", see
    on_device. num_outputs: of the rules whose pattern returns a tuple; their results are checked. Raises KeyError if a
    replacement is missing.
    """
    target_device = None if device is None else torch.device(device)
    graph = torch.fx.Graph()
    values: dict[str, torch.fx.Node] = {}
    functions = {
        rule: _Checked(rule, function, (num_outputs or {})[rule]) if rule in (num_outputs or {}) else function
        for rule, function in replacements.items()
    }

    def argument(value: Any) -> Any:
        return map_refs(value, lambda ref: values[ref.name])

    for original in ir.nodes:
        node = on_device(original, target_device)
        args, kwargs = argument(node.args), argument(dict(node.kwargs))
        if node.op == "placeholder":
            values[node.name] = graph.placeholder(node.name)
        elif node.op == "output":
            graph.output(args[0])
        elif node.op == "getattr":
            values[node.name] = graph.call_function(getattr, (args[0], node.target))
        elif node.op == "call_method":
            values[node.name] = graph.call_method(node.target, args, kwargs)
        elif node.target.startswith(REPLACEMENT_PREFIX):
            function = functions[node.target.removeprefix(REPLACEMENT_PREFIX)]
            values[node.name] = graph.call_function(_named(function, node.target), args, kwargs)
        else:
            values[node.name] = graph.call_function(resolve_target(node.target), args, kwargs)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _named(function: Callable[..., Any], target: str) -> Callable[..., Any]:
    # torch.fx names a callable in the generated code by these two attributes; a partial or a Triton launcher has none
    if hasattr(function, "__name__") and hasattr(function, "__module__"):
        return function
    rule = target.removeprefix(REPLACEMENT_PREFIX)

    def replacement(*args: Any) -> Any:
        return function(*args)

    replacement.__name__ = replacement.__qualname__ = f"replacement_{rule}"
    return replacement
