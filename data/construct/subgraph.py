"""A captured graph -> a slice of it, chosen by its operators. No text is written here.

A slice is convex: no value leaves it and comes back. So it can stand alone as a graph whose inputs are the values it
takes and whose outputs are the values that others use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from data.construct.extract import CapturedGraph
from data.construct.metas import ValueRecord

_COMPUTE_OPS = ("call_function", "call_method")


@dataclass(frozen=True)
class Slice:
    """Nodes of one captured graph that form a graph of their own."""

    nodes: tuple[torch.fx.Node, ...]
    """In the order of the graph."""
    inputs: tuple[torch.fx.Node, ...]
    """Parameters first, then activations, each by name: the order of PassNet's published graphs."""
    outputs: tuple[torch.fx.Node, ...]
    """In the order of the graph."""
    stats: dict[str, ValueRecord]
    """Name of an input node -> what it was."""

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(operator_name(node) for node in self.nodes)


def operator_name(node: torch.fx.Node) -> str:
    """The bare name: "add" for operator.add and torch.add, "softmax" for function and method."""
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", str(node.target))


def find_slices(captured: CapturedGraph, operators: Sequence[str]) -> Iterator[Slice]:
    """Every slice whose operators, in graph order, are exactly these, grown backwards from its last operator."""
    position = {node: index for index, node in enumerate(captured.graph.nodes)}
    for anchor in captured.graph.nodes:
        if anchor.op in _COMPUTE_OPS and operator_name(anchor) == operators[-1]:
            nodes = _grow(anchor, Counter(operators), position)
            if tuple(operator_name(node) for node in nodes) == tuple(operators) and _is_convex(nodes, position):
                found = _slice_of(captured, nodes)
                if found is not None:
                    yield found


def _grow(anchor: torch.fx.Node, wanted: Counter[str], position: dict[torch.fx.Node, int]) -> tuple[torch.fx.Node, ...]:
    """Take producers, nearest first, as long as their operator is still wanted."""
    wanted = wanted.copy()
    wanted[operator_name(anchor)] -= 1
    taken = {anchor}
    frontier = set(anchor.all_input_nodes)
    while frontier:
        node = max(frontier, key=position.__getitem__)
        frontier.remove(node)
        if node in taken or node.op not in _COMPUTE_OPS or wanted[operator_name(node)] <= 0:
            continue
        wanted[operator_name(node)] -= 1
        taken.add(node)
        frontier.update(node.all_input_nodes)
    return tuple(sorted(taken, key=position.__getitem__))


def _is_convex(nodes: tuple[torch.fx.Node, ...], position: dict[torch.fx.Node, int]) -> bool:
    """No path leaves the nodes and returns."""
    inside = set(nodes)
    last = position[nodes[-1]]
    frontier = [user for node in nodes for user in node.users if user not in inside]
    seen = set(frontier)
    while frontier:
        node = frontier.pop()
        if position[node] > last:
            continue
        for user in node.users:
            if user in inside:
                return False
            if user not in seen:
                seen.add(user)
                frontier.append(user)
    return True


def _slice_of(captured: CapturedGraph, nodes: tuple[torch.fx.Node, ...]) -> Slice | None:
    """None if an input is no tensor or is mutated elsewhere: such a slice does not stand alone."""
    inside = set(nodes)
    inputs = {producer for node in nodes for producer in node.all_input_nodes if producer not in inside}
    if any(node not in captured.stats for node in inputs):
        return None
    outputs = tuple(node for node in nodes if not node.users or any(user not in inside for user in node.users))
    if any(node not in captured.stats for node in outputs):
        return None
    ordered = sorted(inputs, key=lambda node: (not is_parameter(node), node.name))
    return Slice(nodes, tuple(ordered), outputs, {node.name: captured.stats[node] for node in ordered})


def is_parameter(node: torch.fx.Node) -> bool:
    """A placeholder that stands for a module's parameter or buffer."""
    return node.op == "placeholder" and ("_parameters_" in node.name or "_buffers_" in node.name)
