"""Finding a pattern in a graph.

Going backwards from the pattern's last node, each pattern node is compared with a graph node in normalised form
(normalise.py). Rules of a match:
- a placeholder of the pattern binds to one node of the graph, never to a literal and never to a node inside the match;
- literals must be equal; `a + b` may match `b + a` (add, mul, maximum, minimum);
- a matched value that something else in the graph uses must be an output of the pattern;
- matches do not overlap, and none reaches across a mutation of what it reads (memory_order.py);
- nodes that nothing depends on are ignored, in the graph and in the pattern.
A failure is explained by the nearest miss: the attempt that matched most before it failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eval_harness.graph_ir import IRNode, Ref
from eval_harness.literals import Pair, has_refs, inner_pairs
from eval_harness.memory_order import MemoryOrder, live_nodes
from eval_harness.normalise import describe_operation, operation_of, pair_arguments
from eval_harness.pattern import Pattern
from eval_harness.tracing import TracedProgram

MAX_COMPARISONS = 20_000
MAX_COMPARISONS_A_NODE = 50
"""For all rules of a folder on one graph, at least and for each of its nodes: about a second. Honest patterns need a
few a node; patterns are untrusted, and matching runs in the judge."""


@dataclass(frozen=True)
class Match:
    """One place where a pattern was found."""

    nodes: Mapping[str, str]
    """Pattern node -> graph node."""
    bindings: Mapping[str, str]
    """Placeholder -> graph node."""
    outputs: tuple[str, ...]
    """Graph nodes of the pattern's outputs, in order."""

    @property
    def members(self) -> frozenset[str]:
        return frozenset(self.nodes.values())


@dataclass
class _State:
    """A partial match."""

    nodes: dict[str, str] = field(default_factory=dict)
    bindings: dict[str, str] = field(default_factory=dict)
    todo: list[tuple[str, Pair]] = field(default_factory=list)
    anchors_left: int = 0

    def copy(self) -> _State:
        return _State(dict(self.nodes), dict(self.bindings), list(self.todo), self.anchors_left)


@dataclass
class Miss:
    """Why an attempt failed, and how far it had come."""

    depth: tuple[int, int]
    """Matched pattern nodes; then 0 other operation, 1 other arguments, 2 the rest of the graph."""
    text: str


class Matcher:
    """Finds patterns in one graph. `taken` nodes belong to matches of earlier rules."""

    def __init__(self, traced: TracedProgram) -> None:
        self.traced = traced
        self.order = MemoryOrder(traced)
        self.users = traced.ir.users()
        has_effect = {node.name: bool(self.order.writes(node)) for node in traced.ir.nodes}
        self.live = live_nodes(traced.ir, has_effect)
        self.groups: dict[str, frozenset[str]] = {}
        self.max_comparisons = MAX_COMPARISONS + MAX_COMPARISONS_A_NODE * len(traced.ir.nodes)
        self.comparisons = 0
        """Over all patterns."""
        self._by_operation: dict[tuple[str, str], list[IRNode]] = {}
        for node in traced.ir.calls:
            if node.name in self.live:
                self._by_operation.setdefault(operation_of(node.op, node.target), []).append(node)

    def find(self, pattern: Pattern) -> tuple[list[Match], Miss | None]:
        """All non-overlapping matches in execution order, which become taken, and the nearest miss."""
        search = _Search(self, pattern)
        found: list[Match] = []
        for node in self._candidates(pattern, pattern.anchors[0]):
            if self.comparisons > self.max_comparisons:
                break
            if node.name in self.groups:
                if not found:
                    search.note((0, 0), f"node {node}: already replaced by an earlier match")
                continue
            match = search.from_anchor(node)
            if match is not None:
                found.append(match)
                for name in match.members:
                    self.groups[name] = match.members
        return found, search.nearest

    def _candidates(self, pattern: Pattern, name: str) -> list[IRNode]:
        wanted = pattern.nodes[name]
        return self._by_operation.get(operation_of(wanted.op, wanted.target), [])


class _Search:
    """Backtracking search for one pattern, with an explicit stack: patterns may be longer than Python's recursion."""

    def __init__(self, matcher: Matcher, pattern: Pattern) -> None:
        self.matcher, self.pattern = matcher, pattern
        self.graph = matcher.traced.ir.by_name
        self.nearest: Miss | None = None
        self._explain_absent()

    def _explain_absent(self) -> None:
        for name in self.pattern.anchors:
            if not self.matcher._candidates(self.pattern, name):
                node = self.pattern.nodes[name]
                self.note((0, 0), f"the graph has no {describe_operation(node)}, which the pattern ends in ({node})")
                return

    def note(self, depth: tuple[int, int], text: str) -> None:
        if self.nearest is None or depth > self.nearest.depth:
            self.nearest = Miss(depth, text)

    def from_anchor(self, node: IRNode) -> Match | None:
        first = self.pattern.anchors[0]
        start = _State(todo=[("", Pair("output", Ref(node.name), Ref(first), "Tensor"))], anchors_left=1)
        stack = [start]
        while stack:
            state = stack.pop()
            branches = self._advance(state)
            if branches is None:
                if state.anchors_left < len(self.pattern.anchors):
                    stack.extend(reversed(self._next_anchor(state)))
                    continue
                match = self._finish(state)
                if match is not None:
                    return match
            else:
                stack.extend(reversed(branches))
        return None

    def _next_anchor(self, state: _State) -> list[_State]:
        name = self.pattern.anchors[state.anchors_left]
        states = []
        for node in self.matcher._candidates(self.pattern, name):
            branch = state.copy()
            branch.anchors_left += 1
            branch.todo.append(("", Pair("output", Ref(node.name), Ref(name), "Tensor")))
            states.append(branch)
        return states

    def _advance(self, state: _State) -> list[_State] | None:
        """Work off todo. None: all of it agreed; else the states to go on with (none after a failure)."""
        while state.todo:
            owner, pair = state.todo.pop()
            failure = self._compare(state, owner, pair)
            if isinstance(failure, str):
                if failure:
                    specificity = 0 if failure.startswith("\0") else 1
                    # the node whose arguments differ does not count as matched
                    self.note((len(state.nodes) - specificity * bool(owner), specificity), failure.lstrip("\0"))
                return []
            if failure is not None:
                return failure
        return None

    def _compare(self, state: _State, owner: str, pair: Pair) -> list[_State] | str | None:
        """None: agrees. A text: does not. States: several ways to go on."""
        graph_value, pattern_value = pair.graph_value, pair.pattern_value
        if isinstance(pattern_value, Ref):
            if not isinstance(graph_value, Ref):
                return self._says(
                    state,
                    owner,
                    f"{pair.label} is the literal {_show(graph_value)} in the graph, the value {pattern_value} in the "
                    "pattern; write the literal in the pattern",
                )
            if pattern_value.name in self.pattern.nodes:
                return self._compare_nodes(state, graph_value.name, pattern_value.name)
            bound = state.bindings.setdefault(pattern_value.name, graph_value.name)
            if bound != graph_value.name:
                return self._says(state, owner, f"{pair.label} is {graph_value} in the graph, but the pattern's "
                                         f"{pattern_value} is already {bound}")  # fmt: skip
            return None
        if isinstance(graph_value, Ref):
            return self._says(state, owner, f"{pair.label} is the value {graph_value} in the graph, the literal "
                                     f"{_show(pattern_value)} in the pattern")  # fmt: skip
        inner = inner_pairs(pair)
        if inner is None:
            differs = f"{pair.label} is {_show(graph_value)} in the graph, {_show(pattern_value)} in the pattern"
            return self._says(state, owner, differs)
        state.todo.extend((owner, item) for item in reversed(inner))
        return None

    def _compare_nodes(self, state: _State, graph_name: str, pattern_name: str) -> list[_State] | str | None:
        matched = state.nodes.get(pattern_name)
        if matched is not None:
            if matched == graph_name:
                return None
            return f"the pattern's {pattern_name} is {matched} in one place of the graph, {graph_name} in another"
        self.matcher.comparisons += 1
        if self.matcher.comparisons > self.matcher.max_comparisons:
            self.note((len(state.nodes), 3), f"the search gave up after {self.matcher.max_comparisons} comparisons; "
                                             "make the patterns smaller or less repetitive")  # fmt: skip
            return ""
        graph_node, pattern_node = self.graph[graph_name], self.pattern.nodes[pattern_name]
        if graph_node.op in ("placeholder", "output"):
            return f"\0the pattern has {pattern_node} where the graph has its input {graph_name}"
        if operation_of(graph_node.op, graph_node.target) != operation_of(pattern_node.op, pattern_node.target):
            return f"\0node {graph_node}: the pattern has {pattern_node} there"
        if graph_name in self.matcher.groups:
            return f"node {graph_node}: already replaced by an earlier match"
        if graph_name in state.nodes.values():
            return f"node {graph_node}: would stand for two nodes of the pattern"
        ways = pair_arguments(graph_node, pattern_node, self.matcher.traced.values)
        if isinstance(ways, str):
            return f"node {graph_node} (in the pattern {pattern_node}): {ways}"
        # literals first: a call whose literals differ is not taken for a partial match
        state.nodes[pattern_name] = graph_name
        if len(ways) == 1 or len(set(graph_node.refs())) == 1:  # t + t: both orders are the same
            state.todo.extend((graph_name, pair) for pair in sorted(ways[0], key=has_refs, reverse=True))
            return None
        branches = []
        for way in ways:
            branch = state.copy()
            branch.todo.extend((graph_name, pair) for pair in reversed(way))
            branches.append(branch)
        return branches

    def _says(self, state: _State, owner: str, text: str) -> str:
        """The text with both spellings of the node whose arguments differ."""
        if not owner:
            return text
        spelled = next((str(self.pattern.nodes[name]) for name, node in state.nodes.items() if node == owner), "")
        return f"node {self.graph[owner]} (in the pattern {spelled}): {text}" if spelled else f"node {owner}: {text}"

    def _finish(self, state: _State) -> Match | None:
        match = Match(
            nodes=dict(state.nodes),
            bindings=dict(state.bindings),
            outputs=tuple(state.nodes[name] for name in self.pattern.outputs),
        )
        problem = self._problem(match)
        if problem is not None:
            self.note((len(state.nodes), 2), problem)
            return None
        return match

    def _problem(self, match: Match) -> str | None:
        """Why a complete match may not be replaced."""
        members, matcher, graph = match.members, self.matcher, self.graph
        for placeholder, name in match.bindings.items():
            if name in members:
                return f"the pattern's {placeholder} is node {graph[name]}, which is inside the match"
        for name in members - set(match.outputs):
            outside = [user for user in matcher.users[name] if user not in members and user in matcher.live]
            if outside:
                return (
                    f"node {graph[name]}: {graph[outside[0]].name} outside of the match uses it too, so the pattern "
                    "must return it"
                )
        return self._memory_problem(match) or self._order_problem(match)

    def _order_problem(self, match: Match) -> str | None:
        members, order = match.members, self.matcher.order
        between = order.path_back(members, self.matcher.groups)
        if between is not None:
            return (
                f"node {self.graph[between]}: comes after one part of the match and before another, and cannot be "
                "moved (it changes what the match reads, or depends on it)"
            )
        position = {name: index for index, name in enumerate(self.pattern.nodes)}
        for effect in self.pattern.effects & set(match.nodes):
            for other in match.nodes:
                in_pattern = position[effect] < position[other]
                first, second = match.nodes[effect], match.nodes[other]
                written = order.writes(self.graph[first])
                touches = other != effect and bool(written & order.reads(self.graph[second]))
                if touches and in_pattern != (order.position[first] < order.position[second]):
                    return f"node {self.graph[first]}: is in another order in the pattern"
        return None

    def _memory_problem(self, match: Match) -> str | None:
        """In-place changes that the replacement would not make, or would not see."""
        members, matcher, graph = match.members, self.matcher, self.graph
        order, storages = matcher.order, matcher.traced.storages
        inputs = {name for member in members for name in graph[member].refs()} - members
        outer: frozenset[int] = frozenset().union(*(storages[name] for name in inputs))
        start = min(order.position[name] for name in members)
        for name in members:
            written = order.writes(graph[name]) & outer
            if written:
                reader = self._other_access(written, order.position[name], members)
                if reader is not None:
                    return f"node {graph[name]}: changes a value of outside the match, which {reader} reads afterwards"
        seen: frozenset[int] = frozenset()
        for name in dict.fromkeys(match.outputs):
            shared = storages[name] & (outer | seen)
            writer = order.later_writers(shared, start, members) if shared else None
            separate = not shared & seen and self._other_access(shared, start, members) is None
            if writer is not None and not separate:
                return f"node {graph[name]}: is a view, and {graph[writer]} changes what it looks at"
            seen |= storages[name]
        return None

    def _other_access(self, storages: frozenset[int], after: int, members: frozenset[str]) -> str | None:
        """Who reads or changes the storages after a position, other than through the outputs of the match.

        What goes through the outputs, and through views of them, will go through the replacement's results.
        """
        traced, through_outputs = self.matcher.traced, set(members)
        for node in traced.ir.nodes:
            if node.op == "placeholder" and traced.storages[node.name] & storages:
                return "the caller (an input is changed)"
        for node in traced.ir.nodes[after + 1 :]:
            if node.name in members or node.name not in self.matcher.live:
                continue
            if any(name not in through_outputs and traced.storages[name] & storages for name in node.refs()):
                return node.name
            through_outputs.add(node.name)
        return None


def _show(value: Any) -> str:
    text = repr(tuple(value) if isinstance(value, list) else value)
    return text if len(text) <= 80 else text[:77] + "..."
