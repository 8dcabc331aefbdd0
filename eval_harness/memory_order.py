"""What must stay in which order when nodes of a graph are replaced: data flow, and reads and writes of one storage.

An in-place node writes storages that other nodes read, perhaps through views. Reads before it stay before it, reads
after it after it. A set of nodes may become one call only if, with these edges, collapsing it makes no cycle: that is
what refuses matches that are not convex and matches that reach across a mutation of what they read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from eval_harness.graph_ir import IRGraph, IRNode
from eval_harness.tracing import TracedProgram

_METADATA = {"shape", "dtype", "device", "ndim", "is_cuda", "size", "dim", "numel", "layout", "stride"}
"""Attributes and methods that do not look at values."""
# fmt: off
_RANDOM = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "bernoulli_",
    "multinomial", "normal", "normal_", "uniform_", "random_", "exponential_", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "alpha_dropout", "feature_alpha_dropout", "rrelu", "gumbel_softmax", "native_dropout", "poisson",
}
# fmt: on
_MODES = {"_set_grad_enabled", "_enter_autocast", "_exit_autocast"}
_RNG, _MODE = -1_000_000, -1_000_001
"""Stand-ins for storages: the generator's state, and the grad and autocast modes."""


class MemoryOrder:
    """Order edges of a traced graph."""

    def __init__(self, traced: TracedProgram) -> None:
        self.traced = traced
        self.position = {node.name: index for index, node in enumerate(traced.ir.nodes)}

    def writes(self, node: IRNode) -> frozenset[int]:
        if node.short_target in _MODES:
            return frozenset({_MODE})
        written = self.traced.writes[node.name]
        return written | {_RNG} if node.short_target in _RANDOM and not _is_inference_dropout(node) else written

    def reads(self, node: IRNode) -> frozenset[int]:
        """Storages whose content the node may look at."""
        if node.op in ("getattr", "call_method") and node.target in _METADATA:
            return frozenset()
        storages = self.traced.storages
        return frozenset().union(*(storages[name] for name in set(node.refs()))) | {_MODE}

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """Node -> the later nodes that must stay after it."""
        found: dict[str, dict[str, None]] = defaultdict(dict)
        last_write: dict[int, str] = {}
        accesses: dict[int, list[str]] = defaultdict(list)
        for node in self.traced.ir.nodes:
            for ref in node.refs():
                found[ref][node.name] = None
            written = self.writes(node)
            for storage in self.reads(node) | written:
                if storage in last_write:
                    found[last_write[storage]][node.name] = None
                if storage in written:
                    for earlier in accesses.pop(storage, ()):
                        found[earlier][node.name] = None
                    last_write[storage] = node.name
                else:
                    accesses[storage].append(node.name)
        return {name: tuple(later) for name, later in found.items()}

    def path_back(self, members: frozenset[str], groups: Mapping[str, frozenset[str]]) -> str | None:
        """A node outside `members` that must run after one member and before another, or None.

        groups: nodes that are already one call each (node -> all nodes of its call).
        """
        seen: set[str] = set()
        parent: dict[str, str] = {}
        todo = [later for name in members for later in self.successors.get(name, ()) if later not in members]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            unit = groups.get(name, frozenset({name}))
            seen |= unit
            for member in unit:
                for later in self.successors.get(member, ()):
                    if later in members:
                        return name
                    if later not in seen:
                        parent[later] = name
                        todo.append(later)
        return None

    def later_writers(self, storages: frozenset[int], after: int, members: Iterable[str]) -> str | None:
        """A node outside `members`, later than position `after`, that changes one of the storages."""
        outside = set(members)
        for node in self.traced.ir.nodes[after + 1 :]:
            if node.name not in outside and self.writes(node) & storages:
                return node.name
        return None


def _is_inference_dropout(node: IRNode) -> bool:
    if "dropout" not in node.target:
        return False
    training = node.kwargs.get("training", node.args[2] if len(node.args) > 2 else None)
    return training is False


def live_nodes(ir: IRGraph, has_effect: Mapping[str, bool]) -> set[str]:
    """Names of the nodes that the output or a node with an effect depends on."""
    live = {ir.output.name, *(name for name, effect in has_effect.items() if effect)}
    for node in reversed(ir.nodes):
        if node.name in live:
            live.update(node.refs())
    return live
