"""Loops: what they carry, and whether the places where they cut a sum follow the batch."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.binding import assign
from eval_harness.batch_invariance.static.branches import LEFT, name_choice
from eval_harness.batch_invariance.static.iteration import iterate
from eval_harness.batch_invariance.static.loop_facts import ITEMS, LoopFacts, loop_facts
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import STATEMENTS, Frame, LoopExits, Run
from eval_harness.batch_invariance.static.values import (
    BLOCK,
    EXTENT,
    NC,
    NUM,
    PTR,
    RANGE,
    ROWS,
    SEQ,
    STRUCT,
    TENSOR,
    Dep,
    Val,
    element,
    merge,
    merge_all,
    stronger,
    struct,
    with_dep,
)

_MAX_UNROLLED = 12


def _facts(run: Run, node: ast.For | ast.While) -> LoopFacts:
    facts = run.loop_facts.get(id(node))
    if facts is None:
        facts = run.loop_facts[id(node)] = loop_facts(node.body)
    return facts


def _counters(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]


def _for(run: Run, node: ast.For, frame: Frame) -> None:
    iterable = run.eval(node.iter, frame)
    facts = _facts(run, node)
    items, count = iterate(iterable)
    if iterable.kind == RANGE and len(items) > 1 and frame.kernel is not None:
        counter = items[0].copy()
        counter.const, counter.index = NC, True
        items = [counter]
    if len(items) > _MAX_UNROLLED:
        items = [merge_all(items)]
    frame.exits.append(LoopExits(frame.control))
    first_load, entering = len(run.loads), dict(frame.variables)
    if len(items) > 1:
        for item in items:
            assign(run, node.target, item, frame, node.target)
            run.exec_block(node.body, frame)
            if frame.ended:
                break
    else:
        _rounds(run, node, frame, facts, items[0] if items else None)
    left_under = _join_exits(frame)
    sums = _follow_count(run, node, frame, facts, stronger(count, left_under), entering)
    if sums:
        _check_for(run, node, frame, facts, iterable, count, sums, run.loads[first_load:])
    run.exec_block(node.orelse, frame)


def _rounds(run: Run, node: ast.For | ast.While, frame: Frame, facts: LoopFacts, item: Val | None) -> None:
    """The body once; again where a dependency may travel from one round to the next."""
    variables = frame.variables
    for name in facts.assigned:  # another value in every round
        value = variables.get(name)
        if value is not None and value.const is not NC:
            value = value.copy()
            value.const = NC
            variables[name] = value
    for _ in range(2):
        before = dict(frame.variables)
        if isinstance(node, ast.For) and item is not None:
            assign(run, node.target, item, frame, node.target)
        run.exec_block(node.body, frame)
        if frame.ended == LEFT:
            frame.ended = ""
        if frame.ended:
            return
        changed = False
        for name in facts.assigned:
            old, new = before.get(name), frame.variables.get(name)
            if old is not None and new is not None and old is not new:
                changed = changed or ((old.dep is None) != (new.dep is None)) or (old.pos is None) != (new.pos is None)
        if not changed:
            return


def _while(run: Run, node: ast.While, frame: Frame) -> None:
    facts = _facts(run, node)
    for name in facts.assigned:  # a counter has no constant inside
        value = frame.variables.get(name)
        if value is not None and value.const is not NC:
            value = value.copy()
            value.const = NC
            frame.variables[name] = value
    test = run.eval(node.test, frame)
    if test.const is not NC and not test.const:
        return
    outer = frame.control
    dep = struct(test.dep)
    if dep is not None:
        dep = dep.step(frame.module.file, node.lineno + frame.module.first_line)
    frame.control = stronger(outer, dep)
    frame.exits.append(LoopExits(frame.control))
    entering = dict(frame.variables)
    _rounds(run, node, frame, facts, None)
    frame.control = outer
    left_under = _join_exits(frame)
    again = run.eval(node.test, frame)
    count = stronger(test.dep, again.dep)
    sums = _follow_count(run, node, frame, facts, stronger(count, left_under), entering)
    if sums and count is not None and count.mode == STRUCT:
        _report_bound(run, node, frame, facts, count, sums)
    if sums:
        run.events[("loop", "while")] = None


def _join_exits(frame: Frame) -> Dep | None:
    """Merge in the variables of every break and continue; returns the condition of the batch among them."""
    dep: Dep | None = None
    for variables, control in frame.exits.pop().places:
        dep = stronger(dep, control)
        merged = frame.variables
        for name, value in variables.items():
            other = merged.get(name)
            if other is None:
                merged[name] = value
            elif other is not value:
                merged[name] = name_choice(merge(other, value, control), name)
    if frame.ended == LEFT:
        frame.ended = ""
    return dep


def _follow_count(
    run: Run,
    node: ast.For | ast.While,
    frame: Frame,
    facts: LoopFacts,
    count: Dep | None,
    entering: dict[str, Val],
) -> list[str]:
    """Numbers that the loop computes round by round follow its number of rounds; returns the sums it carries."""
    sums: list[str] = []
    for name in facts.carried:
        value = frame.variables.get(name.removesuffix(ITEMS))
        if value is None:
            continue
        if name.endswith(ITEMS):
            if _holds_sums(value):
                sums.append(name.removesuffix(ITEMS))
        elif _is_sum(value, frame):
            before = entering.get(name)
            if before is None or before.elem != "i" or before.kind != BLOCK:  # a block keeps its type in a loop
                sums.append(name)
        elif count is not None and value.kind == NUM and frame.kernel is None:
            dep = count.into(STRUCT).step(frame.module.file, node.lineno + frame.module.first_line, name)
            frame.variables[name] = with_dep(value, dep)
    return sums


def _is_sum(value: Val, frame: Frame) -> bool:
    if value.kind == BLOCK:
        return value.elem not in ("i", "b")
    if value.kind == TENSOR:
        return value.elem not in ("i", "b")
    if value.kind == SEQ:  # (maximum, sum, weighted sum) carried together
        return value.data is not None and any(_is_sum(item, frame) for item in value.data)
    return value.kind == NUM and value.elem == "f"


def _holds_sums(buffer: Val) -> bool:
    """Whether the items of a buffer are floating point."""
    held = buffer.data if buffer.kind == PTR and isinstance(buffer.data, Val) else buffer
    if buffer.kind == SEQ:
        return element(buffer).kind == TENSOR
    return buffer.kind in (PTR, TENSOR) and held.elem not in ("i", "b")


def _check_for(
    run: Run,
    node: ast.For,
    frame: Frame,
    facts: LoopFacts,
    iterable: Val,
    count: Dep | None,
    sums: list[str],
    loads: list[Any],
) -> None:
    if iterable.kind != RANGE:
        run.events[("loop", "items")] = None
        if count is not None and count.mode != ROWS:
            _report_bound(run, node, frame, facts, count, sums)
        return
    lo, hi, step = iterable.data
    run.events[("loop", step.const if step.const is not NC else "?")] = None
    if hi.dep is not None and hi.dep.mode == ROWS:
        return  # walks over rows
    line = node.lineno
    what = f"the loop that adds up {', '.join(sorted(sums))}"
    if step.dep is not None:
        report(run, frame, line, Mechanism.REDUCTION_ORDER, "step", step.dep, f"the step of {what}")
    elif lo.dep is not None and not _is_tile_edge(frame, lo):
        report(run, frame, line, Mechanism.WORK_PARTITIONING, "bound", lo.dep, f"the start of {what}")
    elif hi.dep is not None and hi.dep.mode != EXTENT:
        if lo.dep is not None or _is_tile_edge(frame, hi):
            run.leave_open(frame, line, f"{what} ends at the edge of a tile whose height follows the batch")
        else:
            _report_bound(run, node, frame, facts, hi.dep, sums, loads)


def _is_tile_edge(frame: Frame, bound: Val) -> bool:
    """Where a causal mask ends a row tile: what lies beyond adds exact zeros."""
    dep = bound.dep
    if frame.kernel is None or dep is None or dep.part or not bound.index or dep.param is None:
        return False
    return dep.param[1] in frame.kernel.tile_names


def _report_bound(
    run: Run,
    node: ast.For | ast.While,
    frame: Frame,
    facts: LoopFacts,
    dep: Dep,
    sums: list[str],
    loads: Sequence[Any] = (),
) -> None:
    what = f"the number of rounds of the loop that adds up {', '.join(sorted(sums))}"
    if dep.mode == EXTENT:
        return
    if isinstance(node, ast.For) and _is_guarded(run, frame, facts, node):
        run.leave_open(frame, node.lineno, f"{what} follows the batch; rounds beyond the row's own length add nothing")
        return
    writers: set[str] = set()
    for buffer in loads:
        if buffer is None or not buffer.writers:
            writers = set()
            break
        writers |= buffer.writers
    place = node.lineno

    def book() -> None:
        report(run, frame, place, Mechanism.WORK_PARTITIONING, "bound", dep, what)

    if writers and frame.kernel is not None:
        # a second pass over parts: more of them, but empty, change nothing; the first pass tells whether they are
        run.tentative.append((writers, book))
    else:
        book()


def _is_guarded(run: Run, frame: Frame, facts: LoopFacts, node: ast.For) -> bool:
    """Whether each round is masked by its counter against something that does not follow the batch."""
    comparisons = facts.comparisons(node.body, _counters(node.target))
    masks = [one for one in comparisons if isinstance(one.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)]
    for comparison in masks:
        operands = [run.eval(comparison.left, frame), *(run.eval(part, frame) for part in comparison.comparators)]
        if any(operand.dep is not None for operand in operands):
            return False
    return bool(masks)


STATEMENTS.update({ast.For: _for, ast.AsyncFor: _for, ast.While: _while})
