"""Rewriting: rules applied to a traced graph, in manifest order -> the graph that will run, as data.

describe (candidate process, rules.py) -> match (matching.py) -> replace and reorder (here) -> build_module
(ir_execution.py, in the processes that run it). Nothing here executes anything of the candidate.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_harness.graph_ir import IRFormatError, IRGraph, IRNode, Ref
from eval_harness.graph_targets import REPLACEMENT_PREFIX
from eval_harness.graph_values import decode_value, encode_value, iter_refs, map_refs
from eval_harness.ir_execution import build_module
from eval_harness.matching import Match, Matcher
from eval_harness.memory_order import MemoryOrder
from eval_harness.pattern import InvalidPatternError, Pattern
from eval_harness.tracing import TracedProgram
from eval_harness.verdict import Violation

__all__ = ["InvalidPatternError", "Rewrite", "RuleDescription", "build_module", "rewrite"]

MAX_REPLACEMENT_ARGS = 256
MAX_VIOLATIONS = 20
MAX_LEFT_NAMED = 8
"""Nodes named that no rule replaced."""


@dataclass(frozen=True)
class RuleDescription:
    """A rule as the candidate process describes it: data only. Validated when read from JSON."""

    rule: str
    """Stem of the rule's file."""
    pattern: IRGraph
    replacement_args: tuple[Any, ...]
    """Literals, and Refs to the pattern's placeholders."""
    violations: tuple[Violation, ...] = ()
    """Structure rules that `replacement_args` broke."""

    @property
    def returns_tuple(self) -> bool:
        return isinstance(self.pattern.output.args[0], (tuple, list))

    @property
    def num_outputs(self) -> int:
        returned = self.pattern.output.args[0]
        return len(returned) if isinstance(returned, (tuple, list)) else 1

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "pattern": self.pattern.to_json(),
            "replacement_args": [encode_value(value) for value in self.replacement_args],
            "violations": [violation.model_dump() for violation in self.violations],
        }

    @classmethod
    def from_json(cls, data: Any) -> RuleDescription:
        """Raises IRFormatError: the data come from an untrusted process."""
        if not isinstance(data, dict) or set(data) != {"rule", "pattern", "replacement_args", "violations"}:
            raise IRFormatError("a rule has rule, pattern, replacement_args and violations")
        rule, args, violations = data["rule"], data["replacement_args"], data["violations"]
        if not (isinstance(rule, str) and rule.isidentifier() and rule.isascii() and len(rule) <= 100):
            raise IRFormatError("a rule's name is a Python identifier of at most 100 ASCII characters")
        if not isinstance(args, list) or len(args) > MAX_REPLACEMENT_ARGS:
            raise IRFormatError(f"rule {rule}: at most {MAX_REPLACEMENT_ARGS} replacement arguments are accepted")
        if not isinstance(violations, list) or len(violations) > MAX_VIOLATIONS:
            raise IRFormatError(f"rule {rule}: violations must be a short list")
        pattern = IRGraph.from_json(data["pattern"])
        if any(node.target.startswith(REPLACEMENT_PREFIX) for node in pattern.nodes):
            raise IRFormatError(f"rule {rule}: a pattern calls no replacement")
        values = tuple(decode_value(value) for value in args)
        placeholders = {node.name for node in pattern.placeholders}
        for name in iter_refs(values):
            if name not in placeholders:
                raise IRFormatError(f"rule {rule}: a replacement argument is {name[:80]!r}, no argument of the pattern")
        try:
            found = tuple(Violation.model_validate(item) for item in violations)
        except ValueError:
            raise IRFormatError(f"rule {rule}: a violation is malformed") from None
        return cls(rule, pattern, values, found)


@dataclass(frozen=True)
class AppliedMatch:
    """A match and the rule that it is of."""

    rule: str
    match: Match

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.match.nodes.values())


@dataclass(frozen=True)
class Rewrite:
    """What the rules made of a graph."""

    ir: IRGraph
    """The rewritten graph; replacements are calls of "replacement:<rule>"."""
    matches: tuple[AppliedMatch, ...]
    report: str
    """For a reader: which rule matched where; of a rule that did not, the nearest miss."""
    violations: tuple[Violation, ...] = ()
    num_outputs: Mapping[str, int] = field(default_factory=dict)
    """Rule -> outputs, for rules whose pattern returns a tuple: build_module's argument of that name."""

    @property
    def num_matches(self) -> int:
        return len(self.matches)

    @property
    def replaced_nodes(self) -> frozenset[str]:
        """Names in the traced graph."""
        return frozenset(name for applied in self.matches for name in applied.nodes)


def rewrite(
    traced: TracedProgram,
    rules: Sequence[RuleDescription],
    *,
    accept: Callable[[AppliedMatch], bool] = lambda applied: True,
) -> Rewrite:
    """Apply each rule to all its non-overlapping matches, in order. With no rules the graph stays as it is.

    accept: asked of each match; one that is not accepted stays as it was, and no later rule gets its nodes. Raises
    InvalidPatternError naming the rule, for a pattern that no graph can be matched with.
    """
    matcher = Matcher(traced)
    applied: list[tuple[RuleDescription, Match]] = []
    lines = []
    for rule in rules:
        try:
            pattern = Pattern.from_ir(rule.pattern)
        except InvalidPatternError as error:
            raise InvalidPatternError(f"{rule.rule}.py: {error}") from None
        _check_bound(rule, pattern)
        found, miss = matcher.find(pattern)
        applied += [(rule, match) for match in found if accept(AppliedMatch(rule.rule, match))]
        for match in found:
            names = sorted(match.members, key=matcher.order.position.__getitem__)
            lines.append(f"{rule.rule}: matched {', '.join(names)}")
        if not found:
            total = len(pattern.nodes)
            depth = 0 if miss is None else miss.depth[0]
            why = "" if miss is None else f"; nearest: {depth} of {total} nodes agree, then {miss.text}"
            lines.append(f"{rule.rule}: no match{why}")
    if applied and (left := [node for node in traced.ir.calls if node.name in matcher.live - matcher.groups.keys()]):
        more = f", and {len(left) - MAX_LEFT_NAMED} more" if len(left) > MAX_LEFT_NAMED else ""
        lines.append(f"left to eager: {', '.join(map(str, left[:MAX_LEFT_NAMED]))}{more}")
    ir = traced.ir if not applied else _replace(matcher, applied)
    return Rewrite(
        ir=ir,
        matches=tuple(AppliedMatch(rule.rule, match) for rule, match in applied),
        report="\n".join(lines),
        violations=tuple(violation for rule in rules for violation in rule.violations)
        + check_structure(traced, ir, applied),
        num_outputs={rule.rule: rule.num_outputs for rule in rules if rule.returns_tuple},
    )


def _check_bound(rule: RuleDescription, pattern: Pattern) -> None:
    used = {ref for node in pattern.nodes.values() for ref in node.refs()}
    for name in iter_refs(rule.replacement_args):
        if name not in used:
            raise InvalidPatternError(
                f"{rule.rule}.py: replacement_args passes {name}, which the pattern does not use and so cannot bind; "
                "leave it out"
            )


def _replace(matcher: Matcher, applied: list[tuple[RuleDescription, Match]]) -> IRGraph:
    """Collapse every match into a call, and put everything in an order that data and memory allow."""
    ir, order = matcher.traced.ir, matcher.order
    unit_of: dict[str, int] = {}
    for index, (_, match) in enumerate(applied):
        unit_of.update(dict.fromkeys(match.members, index))
    dropped = _dead_readers(matcher, applied)
    emitted: dict[int, list[IRNode]] = {}
    swaps: dict[str, str] = {}
    taken = {node.name for node in ir.nodes}
    for index, (rule, match) in enumerate(applied):
        emitted[index] = _replacement_nodes(rule, match, taken, swaps)
    # one unit a call or a node: matches are -1, -2, ..., other nodes have their position
    unit = {n.name: -1 - unit_of[n.name] if n.name in unit_of else order.position[n.name] for n in ir.nodes}
    members: dict[int, list[str]] = {}
    for node in ir.nodes:
        if node.name not in dropped:
            members.setdefault(unit[node.name], []).append(node.name)
    nodes: list[IRNode] = []
    for current in _in_order(members, unit, order):
        nodes += emitted[-1 - current] if current < 0 else [ir.by_name[members[current][0]]]
    return IRGraph([_swapped(node, swaps) for node in nodes])


def _in_order(members: Mapping[int, list[str]], unit: Mapping[str, int], order: MemoryOrder) -> list[int]:
    """Units in an order that data and memory allow (Kahn); what was last in the original order goes last."""
    priority = {key: max(order.position[name] for name in names) for key, names in members.items()}
    later: dict[int, set[int]] = {key: set() for key in members}
    for key, names in members.items():
        for successor in (item for name in names for item in order.successors.get(name, ())):
            if unit[successor] != key and unit[successor] in members:
                later[key].add(unit[successor])
    waiting = dict.fromkeys(members, 0)
    for key in (item for successors in later.values() for item in successors):
        waiting[key] += 1
    ready = [(priority[key], key) for key, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    found = []
    while ready:
        _, current = heapq.heappop(ready)
        found.append(current)
        for key in later[current]:
            waiting[key] -= 1
            if waiting[key] == 0:
                heapq.heappush(ready, (priority[key], key))
    if len(found) < len(members):
        raise AssertionError("accepted matches form a cycle")
    return found


def _dead_readers(matcher: Matcher, applied: list[tuple[RuleDescription, Match]]) -> set[str]:
    """Dead nodes that read a value which the rewritten graph no longer has."""
    gone = {name for _, match in applied for name in match.members - set(match.outputs)}
    dropped: set[str] = set()
    for node in matcher.traced.ir.nodes:
        if node.name not in matcher.live and node.op != "placeholder" and (gone | dropped) & set(node.refs()):
            dropped.add(node.name)
    return dropped


def _replacement_nodes(rule: RuleDescription, match: Match, taken: set[str], swaps: dict[str, str]) -> list[IRNode]:
    def fresh(hint: str) -> str:
        name, count = hint, 0
        while name in taken:
            count += 1
            name = f"{hint}_{count}"
        taken.add(name)
        return name

    call = IRNode(
        fresh(f"{rule.rule}_call"),
        "call_function",
        REPLACEMENT_PREFIX + rule.rule,
        map_refs(rule.replacement_args, lambda ref: Ref(match.bindings[ref.name])),
    )
    if not rule.returns_tuple:
        swaps[match.outputs[0]] = call.name
        return [call]
    nodes = [call]
    for index, output in enumerate(match.outputs):
        if output not in swaps:
            item = IRNode(fresh(f"{call.name}_{index}"), "call_function", "_operator.getitem", (Ref(call.name), index))
            swaps[output] = item.name
            nodes.append(item)
    return nodes


def _swapped(node: IRNode, swaps: Mapping[str, str]) -> IRNode:
    def swap(ref: Ref) -> Ref:
        return Ref(swaps.get(ref.name, ref.name))

    kwargs = map_refs(dict(node.kwargs), swap)
    return IRNode(node.name, node.op, node.target, map_refs(node.args, swap), kwargs, node.where)


def check_structure(
    traced: TracedProgram, ir: IRGraph, applied: Sequence[tuple[RuleDescription, Match]]
) -> tuple[Violation, ...]:
    """The rewritten graph may hold placeholders, replacement calls, getitem on their results, and unmatched nodes."""
    replaced = {name for _, match in applied for name in match.members}
    rules = {rule.rule for rule, _ in applied}
    calls: set[str] = set()
    violations = []
    for node in ir.nodes:
        original = traced.ir.by_name.get(node.name)
        if original is not None and original.op == node.op and original.target == node.target:
            if node.name not in replaced:
                continue
        elif node.target.startswith(REPLACEMENT_PREFIX) and node.target.removeprefix(REPLACEMENT_PREFIX) in rules:
            calls.add(node.name)
            continue
        elif node.target == "_operator.getitem" and isinstance(node.args[0], Ref) and node.args[0].name in calls:
            continue
        violations.append(
            Violation(
                rule="structure.extra-node",
                layer="structure",
                message=f"the rewritten graph holds {node}, which is neither the replacement nor of the graph",
            )
        )
    return tuple(violations)
