"""Where a loop adds up: whether its start, its step or its number of rounds follows the batch."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.loop_facts import LoopFacts
from eval_harness.batch_invariance.static.merging import element
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import BLOCK, EXTENT, NC, NUM, PTR, RANGE, ROWS, SEQ, TENSOR, Dep, Val


def _counters(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]


def is_sum(value: Val, frame: Frame) -> bool:
    if value.kind == BLOCK:
        return value.elem not in ("i", "b")
    if value.kind == TENSOR:
        return value.elem not in ("i", "b")
    if value.kind == SEQ:  # (maximum, sum, weighted sum) carried together
        return value.data is not None and any(is_sum(item, frame) for item in value.data)
    return value.kind == NUM and value.elem == "f"


def holds_sums(buffer: Val) -> bool:
    """Whether the items of a buffer are floating point."""
    held = buffer.data if buffer.kind == PTR and isinstance(buffer.data, Val) else buffer
    if buffer.kind == SEQ:
        return element(buffer).kind == TENSOR
    return buffer.kind in (PTR, TENSOR) and held.elem not in ("i", "b")


def check_counted(
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
            report_bound(run, node, frame, facts, count, sums)
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
            report_bound(run, node, frame, facts, hi.dep, sums, loads)


def _is_tile_edge(frame: Frame, bound: Val) -> bool:
    """Where a causal mask ends a row tile: what lies beyond adds exact zeros."""
    dep = bound.dep
    if frame.kernel is None or dep is None or dep.part or not bound.index or dep.param is None:
        return False
    return dep.param[1] in frame.kernel.tile_names


def report_bound(
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
    is_tile = frame.kernel is not None and dep.param is not None and dep.param[1] in frame.kernel.tile_names
    mechanism = Mechanism.REDUCTION_ORDER if is_tile else Mechanism.WORK_PARTITIONING

    def book() -> None:
        report(run, frame, place, mechanism, "bound", dep, what)

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
