"""Statistics over a whole batch (a scale from the largest value of all rows) that reach a row's own numbers."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import BLOCK, EXTENT, TENSOR, Dep, Val

STATISTIC = "<statistic>"
"""Name of the first step of a dependency on the values of all rows."""


def statistic(file: str, line: int) -> Dep:
    """The first step: a value taken over all rows here."""
    return Dep(EXTENT, file, line, name=STATISTIC)


def is_statistic(dep: Dep | None) -> bool:
    while dep is not None:
        if dep.parent is None:
            return dep.name == STATISTIC
        dep = dep.parent
    return False


def check_statistic(run: Run, frame: Frame, node: ast.AST, a: Val, b: Val) -> None:
    """a op b, floating point: a finding where a row's values meet a number taken over all rows."""
    for value, other in ((a, b), (b, a)):
        if other.dep is None and other.elem == "f" and other.kind in (TENSOR, BLOCK) and is_statistic(value.dep):
            what = "the row's values are computed with a number that"
            assert value.dep is not None
            line = node.lineno  # type: ignore[attr-defined]
            report(run, frame, line, Mechanism.REDUCTION_ORDER, "statistic", value.dep, what)
            return
