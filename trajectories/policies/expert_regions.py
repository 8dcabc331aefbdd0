"""Which statements of a graph are fused together: as many as the writers can express, in as few regions as possible.

A region is convex: nothing outside of it lies on a way from one of its statements to another. On a GPU, where starting
a kernel is most of a small graph's time, regions that do not depend on one another are joined too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from trajectories.policies.expert_expr import Region
from trajectories.policies.expert_ir import (
    CASTS,
    FUSIBLE,
    SAME,
    VENDOR,
    VIEWS,
    Node,
    OutsideFamiliesError,
    Program,
    shown,
)
from trajectories.policies.expert_wrapper import KernelText

Write = Callable[[Region], KernelText]


def fused_regions(
    programs: Sequence[Program], write: Write, *, joins: bool
) -> tuple[list[tuple[Region, KernelText]], list[str]]:
    """Regions with their kernels, the largest first, and why the rest stays outside."""
    program = programs[0]
    refused: list[str] = []
    outside = _outside(programs, refused)
    found: list[tuple[Region, KernelText]] = []
    for level in _levels(program, outside):
        live = _live(program, level)
        whole = _attempt(programs, live, write) if joins else None
        if isinstance(whole, tuple):
            found.append(whole)
            continue
        pieces = [piece for group in _connected(program, live) for piece in _largest(programs, group, refused, write)]
        found += _joined(programs, pieces, write) if joins else pieces
    return sorted(found, key=lambda item: -len(item[0].indices)), refused


def _outside(programs: Sequence[Program], refused: list[str]) -> set[int]:
    """Statements that no region may hold."""
    outside = set()
    for program in programs:
        for node in program.nodes:
            if node.op == "input" or (node.op in FUSIBLE and node.shape is not None):
                continue
            outside.add(node.statement)
            if node.op not in VENDOR | {"const"} and _operands_known(program, node):
                reason = f"{node.op} is outside my families"
                refused += [reason] if reason not in refused else []
    return outside


def _operands_known(program: Program, node: Node) -> bool:
    """Whether it is the operator itself that is unknown, not what comes before it."""
    refs = [program.nodes[ref.node] for ref in node.args if hasattr(ref, "node")]
    return all(ref.shape is not None for ref in refs)


def _levels(program: Program, outside: set[int]) -> list[list[int]]:
    """Fusible statements by how many statements outside lie on the longest way to them."""
    setters = {statement.sets: index for index, statement in enumerate(program.statements)}
    levels: dict[int, int] = {}
    has_fusible: set[int] = set()
    groups: dict[int, list[int]] = {}
    for index, statement in enumerate(program.statements):
        sources = [setters[key] for key in statement.reads if key in setters]
        level = 0
        for source in sources:
            steps = index not in outside and source in outside and source in has_fusible
            level = max(level, levels[source] + steps)
        levels[index] = level
        if index not in outside:
            groups.setdefault(level, []).append(index)
        if index not in outside or any(source in has_fusible for source in sources):
            has_fusible.add(index)
    return [groups[level] for level in sorted(groups)]


def _live(program: Program, indices: Sequence[int]) -> list[int]:
    """Without statements whose values nobody uses."""
    needed = set(program.returns)
    chosen = set(indices)
    for index, statement in enumerate(program.statements):
        if index not in chosen:
            needed |= set(statement.reads)
    kept = []
    for index in reversed(indices):
        statement = program.statements[index]
        if statement.sets in needed:
            kept.append(index)
            needed |= set(statement.reads)
    return kept[::-1]


def _connected(program: Program, indices: Sequence[int]) -> list[list[int]]:
    """Sets of statements that depend on one another, the largest first."""
    component: dict[int, set[int]] = {}
    setters = {program.statements[index].sets: index for index in indices}
    for index in indices:
        joined = {index}
        for key in program.statements[index].reads:
            if setters.get(key) in component:
                joined |= component[setters[key]]
        for member in joined:
            component[member] = joined
    unique = {id(members): sorted(members) for members in component.values()}
    return sorted(unique.values(), key=lambda members: -len(members))


def _largest(
    programs: Sequence[Program], indices: list[int], refused: list[str], write: Write
) -> Iterator[tuple[Region, KernelText]]:
    """The longest run of the statements that the writers can express, then what is left on either side of it."""
    reason = ""
    for size in range(len(indices), 0, -1):
        for start in range(len(indices) - size, -1, -1):
            made = _attempt(programs, indices[start : start + size], write)
            if isinstance(made, str):
                reason = reason or made
                continue
            if made is None:
                continue
            if reason and reason not in refused:
                refused.append(reason)
            yield made
            for rest in (indices[:start], indices[start + size :]):
                for group in _connected(programs[0], rest):
                    yield from _largest(programs, group, refused, write)
            return
    if reason and reason not in refused:
        refused.append(reason)


def _joined(
    programs: Sequence[Program], pieces: list[tuple[Region, KernelText]], write: Write
) -> list[tuple[Region, KernelText]]:
    """Regions that one kernel can hold together, joined one after the other."""
    done: list[tuple[Region, KernelText]] = []
    for piece in pieces:
        for position, (region, _) in enumerate(done):
            union = sorted({*region.indices, *piece[0].indices})
            made = _attempt(programs, union, write) if _is_convex(programs[0], union) else None
            if isinstance(made, tuple):
                done[position] = made
                break
        else:
            done.append(piece)
    return done


def _is_convex(program: Program, indices: Sequence[int]) -> bool:
    """Whether no statement outside depends on the set and is needed by it."""
    chosen = set(indices)
    tainted: set[str] = set()
    for index, statement in enumerate(program.statements):
        reads = set(statement.reads)
        if index in chosen:
            if reads & tainted:
                return False
        elif reads & (tainted | {program.statements[item].sets for item in chosen if item < index}):
            tainted.add(statement.sets)
    return True


def _attempt(programs: Sequence[Program], indices: list[int], write: Write) -> tuple[Region, KernelText] | str | None:
    """The region of these statements with its kernel; why there is none; None if nothing is computed."""
    try:
        region = _make_region(programs, indices)
        if region is None:
            return None
        kernel = write(region)
        _check_literals(region)
        return region, kernel
    except OutsideFamiliesError as error:
        return str(error)


def _check_literals(region: Region) -> None:
    """Rules of one text have one set of literals."""
    values: dict[tuple[str, ...], tuple[object, ...]] = {}
    for index, program in enumerate(region.programs):
        own = tuple(column[index] for column in region.literals.values())
        if values.setdefault(tuple(region.statements(program)), own) != own:
            raise OutsideFamiliesError("a size that no input shows differs between graphs of one text")


def _make_region(programs: Sequence[Program], indices: list[int]) -> Region | None:
    """The region of these statements, less views of inputs that are needed outside; None if nothing is computed."""
    program, kept = programs[0], list(indices)
    while True:
        sets = {program.statements[index].sets for index in kept}
        needed = {name for name in program.returns if name in sets}
        for index, statement in enumerate(program.statements):
            if index not in kept:
                needed |= sets & set(statement.reads)
        drop = [i for i in kept if program.statements[i].sets in needed and _only_views(program, i, kept)]
        if not drop:
            break
        kept = [index for index in kept if index not in drop]
    if not any(_computes(node) for node in program.nodes if node.statement in kept):
        return None
    reads = [name for index in kept for name in program.statements[index].reads if name not in sets]
    outputs = [program.statements[index].sets for index in kept if program.statements[index].sets in needed]
    inputs = sorted(set(reads), key=_natural)
    _check_names(program, kept, inputs, outputs)
    return Region(programs, tuple(kept), inputs, outputs) if outputs else None


def _check_names(program: Program, kept: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """A pattern has one value of each variable at its beginning, and one at its end."""
    last = {shown(program.statements[index].sets): program.statements[index].sets for index in kept}
    is_clear = len({shown(key) for key in inputs}) == len(inputs)
    if not is_clear or any(last[shown(key)] != key for key in outputs):
        raise OutsideFamiliesError("a variable changes between values that are both needed")


def _natural(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(\d*)", name)
    assert match is not None
    return match[1], int(match[2] or 0)


def _only_views(program: Program, index: int, kept: list[int]) -> bool:
    node = program.nodes[program.statements[index].node]
    while node.statement in kept:
        if node.op not in VIEWS | SAME:
            return False
        node = program.nodes[node.args[0].node]
    return True


def _computes(node: Node) -> bool:
    return node.op not in VIEWS | SAME | CASTS | {"input", "const"}
