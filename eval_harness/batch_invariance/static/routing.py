"""Expert routing: places where the number of tokens decides which tokens an expert takes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.arithmetic import OWN
from eval_harness.batch_invariance.static.reporting import PLACE, report
from eval_harness.batch_invariance.static.sources import source
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import BLOCK, NUM, TENSOR, Dep, Val

_WORD = "capacity"
FLAGS = "<flags>"
"""Val.name of a tensor of zeros and ones: which expert a token chose."""


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


def check_drop(run: Run, frame: Frame, node: ast.Compare, operands: Sequence[Val]) -> None:
    """place < capacity: a finding, since a token's place among the others decides.

    A limit that is the number of tokens itself drops none.
    """
    if len(operands) != 2 or not isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return
    first, second = operands
    for place, limit, name_node in ((first, second, node.comparators[0]), (second, first, node.left)):
        if limit.dep is not None and (limit.dep.root is not None or limit.kind != NUM):
            continue
        if (place.index and place.name != OWN) or not (place.kind in (TENSOR, BLOCK) or place.name == OWN):
            continue
        if is_place(place.dep):
            assert place.dep is not None
            report_drop(run, frame, node, place.dep)
        elif is_capacity(run, limit.dep):
            assert limit.dep is not None
            report_drop(run, frame, node, limit.dep)
        elif _names_capacity(name_node):
            report_drop(run, frame, node, source(frame, node.lineno, "place among the tokens"))


def is_place(dep: Dep | None) -> bool:
    """Whether it is a row's place among the others."""
    while dep is not None:
        if dep.name == PLACE:
            return True
        dep = dep.parent
    return False


def _names_capacity(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return _WORD in name.lower()


def report_drop(run: Run, frame: Frame, node: ast.expr, dep: Dep) -> None:
    """Book that tokens beyond a capacity are dropped."""
    what = "how many tokens an expert takes before it drops the others"
    report(run, frame, node.lineno, Mechanism.EXPERT_ROUTING, "capacity", dep, what)
