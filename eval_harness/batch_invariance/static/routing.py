"""Expert routing: places where the number of tokens decides which tokens an expert takes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import BLOCK, NUM, TENSOR, Dep, Val

_WORD = "capacity"


def is_capacity(run: Run, dep: Dep | None) -> bool:
    """Whether the dependency went through a variable that is a capacity, by its name or the contract's."""
    step = dep
    while step is not None:
        if step.name is not None:
            if _WORD in step.name.lower():
                return True
            parameter = run.parameters.get(step.name)
            if parameter is not None and _WORD in parameter.name.lower():
                return True
        step = step.parent
    return False


def check_drop(run: Run, frame: Frame, node: ast.expr, operands: Sequence[Val]) -> None:
    """place < capacity: a finding where a token's place among the others decides, and the capacity follows the batch."""
    for limit in operands:
        if limit.dep is None or limit.kind != NUM:
            continue
        others = [value for value in operands if value is not limit]
        places = [value for value in others if value.kind in (TENSOR, BLOCK) or value.name == "<own>"]
        if places and not any(value.index for value in others) and is_capacity(run, limit.dep):
            report_drop(run, frame, node, limit.dep)


def report_drop(run: Run, frame: Frame, node: ast.expr, dep: Dep) -> None:
    """Book that tokens beyond a capacity are dropped."""
    what = "how many tokens an expert takes before it drops the others"
    report(run, frame, node.lineno, Mechanism.EXPERT_ROUTING, "capacity", dep, what)
