"""Pattern: a traced pattern function, checked to be one that can match something."""

from __future__ import annotations

from dataclasses import dataclass

from eval_harness.graph_ir import IRGraph, IRNode, Ref
from eval_harness.memory_order import live_nodes
from eval_harness.tracing import is_in_place

MAX_PATTERN_NODES = 2_000


class InvalidPatternError(ValueError):
    """The pattern can match nothing, or everything. One line: what is wrong and the cure."""


@dataclass(frozen=True)
class Pattern:
    """The part of a pattern's graph that its outputs and in-place nodes depend on."""

    placeholders: tuple[str, ...]
    """In the order of the pattern's arguments."""
    nodes: dict[str, IRNode]
    """Live calls in execution order."""
    outputs: tuple[str, ...]
    """What it returns, in order; a node may be returned twice."""
    returns_tuple: bool
    anchors: tuple[str, ...]
    """Nodes from which, going backwards, all others are reached; the one that reaches most comes first."""
    effects: frozenset[str]
    """In-place nodes."""

    @classmethod
    def from_ir(cls, ir: IRGraph) -> Pattern:
        """Raises InvalidPatternError."""
        returned = ir.output.args[0]
        returns_tuple = isinstance(returned, (tuple, list))
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if not values or not all(isinstance(value, Ref) for value in values):
            raise InvalidPatternError(
                "the pattern must return a traced value or a tuple of them; return what the rest of the graph uses"
            )
        outputs = tuple(value.name for value in values)
        for name in outputs:
            if ir.by_name[name].op == "placeholder":
                raise InvalidPatternError(f"the pattern returns its argument {name}; return only what it computes")
        effects = frozenset(node.name for node in ir.calls if is_in_place(node))
        live = live_nodes(ir, dict.fromkeys(effects, True))
        nodes = {node.name: node for node in ir.calls if node.name in live}
        if len(nodes) > MAX_PATTERN_NODES:
            raise InvalidPatternError(
                f"the pattern has {len(nodes)} operations; at most {MAX_PATTERN_NODES} are matched"
            )
        return cls(
            placeholders=tuple(node.name for node in ir.placeholders),
            nodes=nodes,
            outputs=outputs,
            returns_tuple=returns_tuple,
            anchors=_anchors(nodes, outputs),
            effects=effects,
        )


def _anchors(nodes: dict[str, IRNode], outputs: tuple[str, ...]) -> tuple[str, ...]:
    read = {ref for node in nodes.values() for ref in node.refs()}
    ends = [name for name in nodes if name not in read]
    reach = {name: _reach(name, nodes) for name in ends}
    return tuple(sorted(ends, key=lambda name: -len(reach[name])))


def _reach(name: str, nodes: dict[str, IRNode]) -> set[str]:
    found, todo = set(), [name]
    while todo:
        current = todo.pop()
        if current in nodes and current not in found:
            found.add(current)
            todo.extend(nodes[current].refs())
    return found
