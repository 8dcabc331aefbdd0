"""A graph that Dynamo captured -> stretches of it in the form that rules are matched on, and back.

    FX graph -> [segment | single node]*, in the program's order -> each segment matched and rewritten -> FX graph

What has no place in an IRGraph (custom operators, higher-order operators, modules, values that are no tensors) stands
alone and stays as it is; no match reaches across it, so that order is kept whatever it does. Sizes that Dynamo left
symbolic are matched by their present value and copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from eval_harness.graph_ir import IRFormatError, IRGraph, IRNode, Ref
from eval_harness.graph_targets import REPLACEMENT_PREFIX, target_name
from eval_harness.graph_values import map_refs
from eval_harness.rewriting import Rewrite
from eval_harness.tracing import TracedProgram, trace_values


class _NotRepresentableError(Exception):
    """A node that has no form in an IRGraph."""


@dataclass
class Segment:
    """Consecutive nodes of an FX graph, and the same as an IRGraph; names are those of the FX nodes."""

    nodes: list[torch.fx.Node] = field(default_factory=list)
    ir_nodes: list[IRNode] = field(default_factory=list)
    inputs: dict[str, torch.fx.Node] = field(default_factory=dict)
    """Values from before it."""
    traced: TracedProgram | None = None

    def finish(self) -> None:
        """Make the traced graph, whose output is everything that later nodes read."""
        own = set(self.nodes)
        left = [node for node in self.nodes if any(user not in own for user in node.users)]
        placeholders = [IRNode(name, "placeholder", name) for name in self.inputs]
        output = IRNode("segment_output", "output", "output", (tuple(Ref(node.name) for node in left),))
        ir = IRGraph([*placeholders, *self.ir_nodes, output])
        self.traced = trace_values(ir, lambda name: _like(_example(self.inputs[name])))

    @property
    def outputs(self) -> list[str]:
        assert self.traced is not None
        return [ref.name for ref in self.traced.ir.output.args[0]]


def split(module: torch.fx.GraphModule) -> Iterator[Segment | torch.fx.Node]:
    """Segments and single nodes in the program's order; placeholders and the output are single nodes."""
    current = Segment()
    for node in module.graph.nodes:
        try:
            current.ir_nodes.append(_convert(node, current))
            current.nodes.append(node)
        except (_NotRepresentableError, IRFormatError):
            if current.nodes:
                current.finish()
                yield current
            current = Segment()
            yield node
    if current.nodes:
        current.finish()
        yield current


def emit(
    module: torch.fx.GraphModule,
    parts: list[Segment | torch.fx.Node],
    rewrites: Mapping[int, Rewrite],
    replacement: Callable[[str, tuple[Any, ...]], Callable[..., Any]],
) -> torch.fx.GraphModule:
    """The module with segments rewritten. rewrites: by position in parts; the other segments stay.

    replacement: (rule's key, the call's arguments in the new graph) -> what is called there.
    """
    graph = torch.fx.Graph()
    env: dict[torch.fx.Node, torch.fx.Node] = {}

    def copy(node: torch.fx.Node) -> None:
        env[node] = graph.node_copy(node, lambda each: env[each])

    for position, part in enumerate(parts):
        if isinstance(part, torch.fx.Node):
            copy(part)
        elif position not in rewrites:
            for node in part.nodes:
                copy(node)
        else:
            _emit_rewritten(graph, part, rewrites[position], env, copy, replacement)
    graph.lint()
    return torch.fx.GraphModule(module, graph)


def _emit_rewritten(
    graph: torch.fx.Graph,
    segment: Segment,
    rewrite: Rewrite,
    env: dict[torch.fx.Node, torch.fx.Node],
    copy: Callable[[torch.fx.Node], None],
    replacement: Callable[[str, tuple[Any, ...]], Callable[..., Any]],
) -> None:
    assert segment.traced is not None
    by_name = {node.name: node for node in segment.nodes} | dict(segment.inputs)
    made: dict[str, torch.fx.Node] = {}

    def value(name: str) -> torch.fx.Node:
        return made[name] if name in made else env[by_name[name]]

    for node in rewrite.ir.nodes:
        original = segment.traced.ir.by_name.get(node.name)
        if node.op == "placeholder":
            continue
        if original is not None:  # what it reads may be a replacement's result by now
            for before, now in zip(original.refs(), node.refs(), strict=True):
                if before != now:
                    env[by_name[before]] = value(now)
            if node.op != "output":
                copy(by_name[node.name])
        elif node.target.startswith(REPLACEMENT_PREFIX):
            arguments = map_refs(node.args, lambda ref: value(ref.name))
            function = replacement(node.target.removeprefix(REPLACEMENT_PREFIX), arguments)
            made[node.name] = graph.call_function(function, arguments)
        else:
            made[node.name] = graph.call_function(_getitem, map_refs(node.args, lambda ref: value(ref.name)))


def _getitem(values: Any, index: int) -> Any:
    return values[index]


def _convert(node: torch.fx.Node, segment: Segment) -> IRNode:
    if node.op not in ("call_function", "call_method"):
        raise _NotRepresentableError
    own = {each.name for each in segment.nodes}
    inputs: dict[str, torch.fx.Node] = {}

    def argument(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return _reference(value, own, inputs)
        if isinstance(value, tuple | list):
            return (
                type(value)(argument(each) for each in value)
                if type(value) in (tuple, list)
                else tuple(argument(each) for each in value)
            )
        if isinstance(value, dict):
            return {key: argument(each) for key, each in value.items()}
        if isinstance(value, slice):
            return slice(argument(value.start), argument(value.stop), argument(value.step))
        return _number(value)

    args, kwargs = argument(tuple(node.args)), argument(dict(node.kwargs))
    if node.op == "call_function":
        target = target_name(node.target)  # type: ignore[arg-type]
        if target is None:
            raise _NotRepresentableError
        converted = IRNode(node.name, "call_function", target, args, kwargs)
    else:
        converted = IRNode(node.name, "call_method", str(node.target), args, kwargs)
    # checked as a graph of its own: a literal that has no encoding, an attribute that is no method
    placeholders = [IRNode(name, "placeholder", name) for name in dict.fromkeys(converted.refs())]
    IRGraph([*placeholders, converted, IRNode("segment_output", "output", "output", (Ref(node.name),))]).to_json()
    segment.inputs.update(inputs)
    return converted


def _reference(node: torch.fx.Node, own: set[str], inputs: dict[str, torch.fx.Node]) -> Any:
    if node.name in own:
        return Ref(node.name)
    example = _example(node)
    if isinstance(example, torch.Tensor):
        inputs[node.name] = node
        return Ref(node.name)
    if isinstance(example, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return _number(example)
    raise _NotRepresentableError


def present(value: Any) -> Any:
    """A symbolic number as what it is at present; int(value) would fix it for good, and compile anew for others."""
    return value.node.hint if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else value


def _number(value: Any) -> Any:
    number = present(value)
    if number is None and value is not None:
        raise _NotRepresentableError
    return number


def _example(node: torch.fx.Node) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def _like(example: torch.Tensor) -> torch.Tensor:
    """An empty tensor of an example's present shape, strides and dtype, on the CPU (made among fake tensors)."""
    shape, stride = [_number(size) for size in example.shape], [_number(step) for step in example.stride()]
    return torch.empty_strided(shape, stride, dtype=example.dtype)
