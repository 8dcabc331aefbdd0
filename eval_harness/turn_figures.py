"""What turns bring (PassNet, Figure 3): AS of the best so far after each turn, the first evaluation's share of it.

Pure functions of the evaluations that the policy was shown. AS over pooled graphs is the mean of the tasks' log AS by
their numbers of graphs, so a turn needs no verdicts. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from eval_harness.report_facts import ShownEvaluation

Shown = Mapping[str, Sequence[ShownEvaluation]]
"""task_id -> the evaluations of one attempt, in order."""


def best_so_far(evaluations: Sequence[ShownEvaluation], turn: int) -> ShownEvaluation | None:
    """The best evaluation up to a turn, as the attempt chooses: covered AS, then AS, then the earliest."""
    scored = [each for each in evaluations if each.turn <= turn and each.as_score is not None]
    return max(scored, key=lambda each: (each.as_covered or 0.0, each.as_score or 0.0), default=None)


def as_by_turn(
    shown: Shown, num_graphs: Mapping[str, int], nothing: float, *, num_turns: int | None = None, covered: bool = False
) -> list[float]:
    """AS over all tasks of the best candidate seen up to turn 1, 2, ...

    num_graphs: task_id -> graphs, of every task. nothing: AS of a task while there is no candidate. num_turns: length
    of the curve; None: up to the last evaluation.
    """
    last = max((each.turn for of_task in shown.values() for each in of_task), default=0)
    curve = []
    for turn in range(1, (last if num_turns is None else num_turns) + 1):
        total = 0.0
        for task_id, count in num_graphs.items():
            best = best_so_far(shown.get(task_id, ()), turn)
            score = None if best is None else best.as_covered if covered else best.as_score
            total += count * math.log(score or nothing)
        curve.append(math.exp(total / sum(num_graphs.values())))
    return curve


def pass_fail_pass(evaluations: Sequence[ShownEvaluation]) -> bool:
    """Whether correctness was had, lost and had again."""
    runs = [is_correct for is_correct, _ in groupby(each.is_correct for each in evaluations)]
    return any(runs[index : index + 3] == [True, False, True] for index in range(len(runs)))


def summarize_turns(shown: Shown) -> dict[str, Any]:
    """The figures beside the curve, each with the number of tasks it is of.

    first_share: mean over tasks of AS of the first evaluation over the best one's (the paper: 31-51%, mean 38%).
    pass_fail_pass: share of the tasks whose best is correct that lost correctness on the way (the paper: 12-52%).
    """
    shares = []
    ends_well = lost_on_the_way = 0
    for evaluations in shown.values():
        best = best_so_far(evaluations, max((each.turn for each in evaluations), default=0))
        first = next((each for each in evaluations if each.as_score is not None), None)
        if best is None or first is None or not best.as_score or not first.as_score:
            continue
        shares.append(first.as_score / max(each.as_score for each in evaluations if each.as_score is not None))
        if best.is_correct:
            ends_well += 1
            lost_on_the_way += pass_fail_pass(evaluations)
    return {
        "num_tasks": len(shares),
        "first_share": sum(shares) / len(shares) if shares else None,
        "num_ending_well": ends_well,
        "pass_fail_pass": lost_on_the_way / ends_well if ends_well else None,
        "num_evaluations": sum(len(evaluations) for evaluations in shown.values()),
    }


def summarize_submissions(attempts: Sequence[Sequence[ShownEvaluation]]) -> dict[str, Any]:
    """Shares of submissions with a violation, of attempts and of single evaluations (the paper: 29-50%)."""
    with_any = [evaluations for evaluations in attempts if evaluations]
    flat = [each for evaluations in attempts for each in evaluations]
    rules = sorted({rule for each in flat for rule in each.rules})
    violating = sum(any(each.rules for each in evaluations) for evaluations in with_any)
    return {
        "num_attempts": len(attempts),
        "num_attempts_with_a_submission": len(with_any),
        "num_submissions": len(flat),
        "num_violating_submissions": sum(bool(each.rules) for each in flat),
        "violating_submissions": sum(bool(each.rules) for each in flat) / len(flat) if flat else None,
        "num_violating_attempts": violating,
        "violating_attempts": violating / len(with_any) if with_any else None,
        "by_rule": {rule: sum(rule in each.rules for each in flat) for rule in rules},
    }
