"""Loops: what they carry, and whether the places where they cut a sum follow the batch."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.binding import assign
from eval_harness.batch_invariance.static.branches import LEFT, merge_variables
from eval_harness.batch_invariance.static.iteration import iterate
from eval_harness.batch_invariance.static.loop_facts import ITEMS, LoopFacts, loop_facts
from eval_harness.batch_invariance.static.loop_sinks import check_counted, holds_sums, is_sum, report_bound
from eval_harness.batch_invariance.static.merging import merge_all
from eval_harness.batch_invariance.static.searches import settle_search
from eval_harness.batch_invariance.static.state import STATEMENTS, Frame, LoopExits, Run
from eval_harness.batch_invariance.static.values import (
    BLOCK,
    NC,
    NUM,
    RANGE,
    STRUCT,
    Dep,
    Val,
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
    if frame.kernel is None:
        sums.extend(f"the results of {event[1]}" for event in run.events if event[0] == "adds to")
    if sums:
        check_counted(run, node, frame, facts, iterable, count, sums, run.loads[first_load:])
    settle_search(run, node, frame, facts)
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
        report_bound(run, node, frame, facts, count, sums)
    if sums:
        run.events[("loop", "while")] = None
    settle_search(run, node, frame, facts)


def _join_exits(frame: Frame) -> Dep | None:
    """Merge in the variables of every break and continue; returns the condition of the batch among them."""
    dep: Dep | None = None
    for variables, control in frame.exits.pop().places:
        dep = stronger(dep, control)
        merge_variables(frame.variables, variables, control)
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
            if holds_sums(value):
                sums.append(name.removesuffix(ITEMS))
        elif is_sum(value, frame):
            before = entering.get(name)
            if before is None or before.elem != "i" or before.kind != BLOCK:  # a block keeps its type in a loop
                sums.append(name)
        elif count is not None and value.kind == NUM and frame.kernel is None:
            dep = count.into(STRUCT).step(frame.module.file, node.lineno + frame.module.first_line, name)
            frame.variables[name] = with_dep(value, dep)
    return sums


STATEMENTS.update({ast.For: _for, ast.AsyncFor: _for, ast.While: _while})
