"""Conditions: both ways run; what differs between them follows the condition, and so does a choice of algorithm."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.merging import merge
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import IF_STATEMENT, Event, Frame, Run
from eval_harness.batch_invariance.static.values import NC, ROWS, Dep, Val, stronger, struct, unknown

RETURNED, RAISED, LEFT = "returned", "raised", "left"
"""Why a block ended: Frame.ended."""


def run_if(run: Run, node: ast.If, frame: Frame, rest: Sequence[ast.stmt]) -> None:
    """An if with what follows it in its block: after a return in one way, the rest is the other way."""
    test = run.eval(node.test, frame)
    if test.const is not NC:
        run.exec_block(node.body if test.const else node.orelse, frame)
        if not frame.ended:
            run.exec_block(rest, frame)
        return
    dep = struct(test.dep)
    before, outer_events, outer_control = frame.variables, run.events, frame.control
    if dep is not None:
        dep = dep.step(frame.module.file, node.lineno + frame.module.first_line)
        frame.control = stronger(outer_control, dep)
    ways = []
    for body in (node.body, node.orelse):
        frame.variables, frame.ended, run.events = dict(before), "", {}
        run.exec_block(body, frame)
        ways.append((frame.variables, frame.ended, run.events))
    (first, first_end, first_events), (second, second_end, second_events) = ways
    if first_end and second_end:
        frame.ended = first_end if first_end == second_end else RETURNED
        rest = ()
    elif first_end or second_end:
        frame.variables, frame.ended = (second, "") if first_end else (first, "")
        run.events = second_events if first_end else first_events
        run.exec_block(rest, frame)
        rest = ()
    else:
        frame.ended = ""
        merge_variables(first, second, dep)
        frame.variables = first
    frame.control, run.events = outer_control, outer_events
    if dep is not None and RAISED not in (first_end, second_end):
        compare_ways(run, frame, node.test, dep, [first_events, second_events], test)
    run.events.update(first_events)
    run.events.update(second_events)
    if before is frame.module.variables:
        before.update(frame.variables)
        frame.variables = before
    if rest:
        run.exec_block(rest, frame)


def merge_variables(variables: dict[str, Val], others: dict[str, Val], dep: Dep | None) -> None:
    """Make `variables` what holds after either way."""
    for name, value in others.items():
        other = variables.get(name)
        if other is None:
            variables[name] = value
        elif other is not value:
            variables[name] = name_choice(merge(other, value, dep), name)


def name_choice(value: Val, name: str) -> Val:
    """The merged value under its variable's name, so that the path tells which one the condition chose."""
    dep = value.dep
    if dep is None or dep.name == name:
        return value
    value = value.copy()
    value.dep = dep.step(dep.file, dep.line, name)
    return value


def evaluate_ways(run: Run, frame: Frame, node: Any, dep: Dep | None, ways: Sequence[Callable[[], Val]]) -> Val:
    """The value of a choice between expressions that the batch makes."""
    outer_events, outer_control = run.events, frame.control
    frame.control = stronger(outer_control, dep)
    values: list[Val] = []
    events: list[dict[Event, None]] = []
    for way in ways:
        run.events = {}
        values.append(way())
        events.append(run.events)
    frame.control, run.events = outer_control, outer_events
    if dep is not None:
        compare_ways(run, frame, node, dep, events)
    for some in events:
        run.events.update(some)
    result = values[0] if values else unknown()
    for value in values[1:]:
        result = merge(result, value, dep)
    return result


def compare_ways(
    run: Run, frame: Frame, node: Any, dep: Dep, ways: Sequence[Iterable[Event]], test: Val | None = None
) -> None:
    """A finding where the batch chooses between ways that add up differently."""
    orders = {tuple(event for event in events if event[0] != "kernel") for events in ways}
    if len(orders) < 2:
        return
    counts = test is not None and test.dep is not None and test.dep.mode == ROWS  # the truth of a count of rows
    if counts or is_empty_test(node):
        return
    is_guard = test is not None and test.index and not _selects(node)
    if () in orders and (is_guard or asks_for_rows(node)):
        return  # nothing to do: an empty batch, or a program beyond the last row
    names = sorted({str(event[1]) for events in ways for event in events if event[0] in ("call", "kernel")})
    kernels = [{event[1] for event in events if event[0] == "kernel"} for events in ways]
    sums = {tuple(event for event in order if event[0] not in ("op", "cast", "call")) for order in orders}
    same = all(found == kernels[0] for found in kernels) and kernels[0] and () not in orders and len(sums) > 1
    mechanism = Mechanism.REDUCTION_ORDER if same else Mechanism.ALGORITHM_SELECTION
    if same:
        report(run, frame, node.lineno, mechanism, "choice", dep, f"the way {' and '.join(sorted(kernels[0]))} runs")
        return
    what = f"the choice between {' and '.join(names)}" if len(names) > 1 else "the choice of how to compute a row"
    report(run, frame, node.lineno, mechanism, "choice", dep, what)


def is_empty_test(test: Any) -> bool:
    """B == 0, not B: one way is for a batch without rows, which has none to compare."""
    if isinstance(test, ast.IfExp):
        return is_empty_test(test.test)
    number = _compared_with(test)
    return (number == 0 and isinstance(test.ops[0], ast.Eq | ast.LtE)) or (
        number == 1 and isinstance(test.ops[0], ast.Lt)
    )


def asks_for_rows(test: Any) -> bool:
    """B > 0, B: whether there is anything to do."""
    if isinstance(test, ast.BoolOp):
        return all(asks_for_rows(part) or is_empty_test(part) for part in test.values)
    number = _compared_with(test)
    if number is not None:
        return (number == 0 and isinstance(test.ops[0], ast.NotEq | ast.Gt)) or (
            number == 1 and isinstance(test.ops[0], ast.GtE)
        )
    return False


def _selects(test: Any) -> bool:
    """Whether the test picks by equality (this part is mine), where a bounds check compares by order."""
    return any(
        isinstance(op, ast.Eq | ast.NotEq)
        for part in ast.walk(test)
        if isinstance(part, ast.Compare)
        for op in part.ops
    )


def _compared_with(test: Any) -> Any:
    """The number that a simple comparison holds its operand against."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        return test.comparators[0].value
    return None


IF_STATEMENT.append(run_if)
