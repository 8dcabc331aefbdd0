"""Searches in a kernel: which row, tile or request a program works on, looked up in loaded row pointers."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.arithmetic import OWN
from eval_harness.batch_invariance.static.loop_facts import LoopFacts
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import NUM, ROWS, Val

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def settle_search(run: Run, node: ast.For | ast.While, frame: Frame, facts: LoopFacts) -> None:
    """What a search over rows ends with is an index: its number of rows bounds it, and does not choose it."""
    if frame.kernel is None:
        return
    found: dict[str, Val] = {}
    for name, (arithmetic, plain) in facts.state.items():
        value = frame.variables.get(name)
        if value is not None and _counts_rows(value) and facts.assigned & (arithmetic | plain):
            found[name] = value  # it moves from round to round
    if not found or not _is_search(run, node, frame):
        return
    for name, value in found.items():
        index = value.copy()
        index.dep, index.index = None, True
        frame.variables[name] = index


def _counts_rows(value: Val) -> bool:
    return value.kind == NUM and value.elem != "f" and value.dep is not None and value.dep.mode == ROWS


def _is_search(run: Run, node: ast.For | ast.While, frame: Frame) -> bool:
    """Whether rounds hold a number that they loaded against the index of this program."""
    parts: list[ast.AST] = [*node.body, *([node.test] if isinstance(node, ast.While) else [])]
    outer, run.events = run.events, {}
    num_loads = len(run.loads)
    try:
        for part in parts:
            for test in ast.walk(part):
                if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _ORDER):
                    left, right = run.eval(test.left, frame), run.eval(test.comparators[0], frame)
                    if _is_looked_up(left, right) or _is_looked_up(right, left):
                        return True
    finally:
        run.events = outer
        del run.loads[num_loads:]
    return False


def _is_looked_up(loaded: Val, index: Val) -> bool:
    """The loaded number may be made of the row it was loaded for; the index may be nothing of the batch."""
    if loaded.kind != NUM or loaded.name != OWN or loaded.elem == "f" or index.name == OWN:
        return False
    return index.index and index.dep is None and (loaded.dep is None or loaded.dep.mode == ROWS)
