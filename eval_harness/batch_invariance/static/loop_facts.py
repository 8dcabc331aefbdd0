"""What a loop carries from round to round, read from its text: sums and recurrences, not running maxima."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.batch_invariance.static.words import words

Reads = tuple[frozenset[str], frozenset[str]]
"""(names that enter arithmetic, names that are only passed on, compared, or maximised)."""

ITEMS = "[]"
"""Ends the name that stands for the items of a buffer, as against the variable that points to it."""
_PASSED_ON = words(
    "maximum minimum max min fmaxf fminf fmax fmin where to contiguous float half clone cast advance any all type_as"
    " max_contiguous multiple_of append extend __shfl_sync broadcast_to reshape view trans int bool item"
)
_FRESH = words("zeros_like empty_like ones_like full_like zeros full empty range len size")
_BITS = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.LShift, ast.RShift)


@dataclass(eq=False)
class LoopFacts:
    """Names a loop assigns, and those whose new value is computed from the old one."""

    assigned: frozenset[str]
    carried: tuple[str, ...]
    state: dict[str, Reads]
    """Name -> what its value after a round is computed from."""

    def comparisons(self, body: Sequence[ast.stmt], counters: Sequence[str]) -> list[ast.Compare]:
        """Comparisons in the body that the loop's counters take part in, directly or through other names."""
        names = set(counters)
        for name, (arithmetic, plain) in self.state.items():
            if names & (arithmetic | plain):
                names.add(name)
        found: list[ast.Compare] = []
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Compare) and any(
                    isinstance(part, ast.Name) and part.id in names for part in ast.walk(node)
                ):
                    found.append(node)
        return found


def loop_facts(body: Sequence[ast.stmt]) -> LoopFacts:
    """Facts of a loop with this body."""
    state: dict[str, Reads] = {}
    _walk(body, state)
    carried = sorted(name for name, reads in state.items() if name in reads[0])
    return LoopFacts(frozenset(state), tuple(carried), state)


def _walk(body: Sequence[ast.stmt], state: dict[str, Reads]) -> None:
    for statement in body:
        kind = type(statement)
        if kind is ast.Assign:
            reads = _resolve(_reads(statement.value), state)  # type: ignore[attr-defined]
            for target in statement.targets:  # type: ignore[attr-defined]
                _store(target, statement.value, reads, state)  # type: ignore[attr-defined]
        elif kind is ast.AugAssign:
            _augment(statement, state)  # type: ignore[arg-type]
        elif kind is ast.AnnAssign:
            if statement.value is not None:  # type: ignore[attr-defined]
                _store(statement.target, statement.value, _resolve(_reads(statement.value), state), state)  # type: ignore[attr-defined]
        elif kind is ast.If:
            _walk_ways([statement.body, statement.orelse], state)  # type: ignore[attr-defined]
        elif kind is ast.Match:
            _walk_ways([case.body for case in statement.cases], state)  # type: ignore[attr-defined]
        elif kind is ast.For:
            reads = _resolve(_reads(statement.iter), state)  # type: ignore[attr-defined]
            _store(statement.target, None, reads, state)  # type: ignore[attr-defined]
            _walk(statement.body, state)  # type: ignore[attr-defined]
        elif kind is ast.While or kind is ast.With:
            _walk(statement.body, state)  # type: ignore[attr-defined]


def _walk_ways(bodies: Sequence[Sequence[ast.stmt]], state: dict[str, Reads]) -> None:
    """Ways of which one runs: a name may be computed as in any of them."""
    before = dict(state)
    for position, body in enumerate(bodies):
        other = state if position == 0 else dict(before)
        _walk(body, other)
        if position == 0:
            continue
        for name in other.keys() | state.keys():
            mine, theirs = state.get(name, _own(name)), other.get(name, _own(name))
            state[name] = (mine[0] | theirs[0], mine[1] | theirs[1])


def _own(name: str) -> Reads:
    return frozenset(), frozenset((name,))


def _store(target: ast.expr, value: ast.expr | None, reads: Reads, state: dict[str, Reads]) -> None:
    if isinstance(target, ast.Name):
        state[target.id] = reads
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
        # all right-hand sides are read before any name changes
        each = [_resolve(_reads(part), state) for part in parts] if parts is not None else [reads] * len(target.elts)
        for element, element_reads in zip(target.elts, each, strict=True):
            _store(element, None, element_reads, state)
    elif isinstance(target, ast.Subscript):
        name = _base(target)
        if name is not None:  # buffer[i] = f(buffer[i]): carried if it reads itself
            name += ITEMS
            old = state.get(name, _own(name))
            state[name] = (old[0] | reads[0], old[1] | reads[1])


def _augment(node: ast.AugAssign, state: dict[str, Reads]) -> None:
    if isinstance(node.target, ast.Name):
        name = node.target.id
    else:
        base = _base(node.target)
        if base is None:
            return
        name = base if isinstance(node.target, ast.Attribute) else base + ITEMS
    added = _resolve(_reads(node.value), state)
    old = state.get(name, _own(name))
    # x <<= 1 doubles
    doubles = isinstance(node.op, ast.LShift) and isinstance(node.value, ast.Constant)
    if isinstance(node.op, _BITS) and not doubles:
        state[name] = (old[0] | added[0], old[1] | added[1])
    else:
        state[name] = (old[0] | old[1] | added[0] | added[1], frozenset())


def _base(node: ast.expr) -> str | None:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _resolve(reads: Reads, state: dict[str, Reads]) -> Reads:
    """Names that the body assigned before stand for what they were computed from."""
    arithmetic: set[str] = set()
    plain: set[str] = set()
    for name in reads[0]:
        inner = state.get(name)
        arithmetic |= {name} if inner is None else inner[0] | inner[1]
    for name in reads[1]:
        inner = state.get(name)
        if inner is None:
            plain.add(name)
        else:
            arithmetic |= inner[0]
            plain |= inner[1]
    return frozenset(arithmetic), frozenset(plain)


def _reads(node: ast.expr) -> Reads:
    arithmetic: set[str] = set()
    plain: set[str] = set()
    _collect(node, arithmetic, plain, False)
    return frozenset(arithmetic), frozenset(plain)


def _collect(node: ast.AST, arithmetic: set[str], plain: set[str], inside: bool) -> None:
    kind = type(node)
    if kind is ast.Name:
        (arithmetic if inside else plain).add(node.id)  # type: ignore[attr-defined]
    elif kind is ast.BinOp:
        bits = isinstance(node.op, _BITS)  # type: ignore[attr-defined]
        _collect(node.left, arithmetic, plain, inside or not bits)  # type: ignore[attr-defined]
        _collect(node.right, arithmetic, plain, inside or not bits)  # type: ignore[attr-defined]
    elif kind is ast.Call:
        _collect_call(node, arithmetic, plain, inside)  # type: ignore[arg-type]
    elif kind is ast.Compare:
        _collect(node.left, set(), set(), False)  # type: ignore[attr-defined]
    elif kind is ast.Attribute:
        _collect(node.value, arithmetic, plain, inside)  # type: ignore[attr-defined]
    elif kind is ast.Subscript:
        _collect(node.value, arithmetic, plain, inside)  # type: ignore[attr-defined]
        base = _base(node)  # type: ignore[arg-type]
        if base is not None:
            (arithmetic if inside else plain).add(base + ITEMS)
    elif kind is not ast.Constant and kind is not ast.Lambda:
        for child in ast.iter_child_nodes(node):
            _collect(child, arithmetic, plain, inside)


def _collect_call(node: ast.Call, arithmetic: set[str], plain: set[str], inside: bool) -> None:
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if name in _FRESH:
        return
    passed = name in _PASSED_ON
    if isinstance(func, ast.Attribute):
        _collect(func.value, arithmetic, plain, inside or not passed)
    for position, argument in enumerate(node.args):
        if name == "where" and position == 0:
            continue
        _collect(argument, arithmetic, plain, inside or not passed)
    for keyword in node.keywords:
        _collect(keyword.value, arithmetic, plain, inside or not passed)
