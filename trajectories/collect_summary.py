"""CollectSummary: what a collection holds, counted from its stored trajectories. No judgement: see selection.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from pydantic import BaseModel, ConfigDict

from eval_harness.scores import geometric_mean
from trajectories.ledger import Ledger
from trajectories.record import Usage
from trajectories.store import TrajectoryStore, is_finished


class CollectSummary(BaseModel):
    """Counts and figures of one collection, over everything in its folder."""

    model_config = ConfigDict(extra="forbid")

    name: str
    is_complete: bool
    """Every planned attempt is finished."""
    num_tasks: int
    num_planned: int
    """Attempts."""
    num_finished: int
    stop_reasons: dict[str, int]
    num_evaluations: int
    num_final_verdicts: int
    num_tasks_solved: int
    """Tasks with an attempt whose final verdict has every graph CORRECT."""
    median_final_as: float | None
    median_final_as_covered: float | None
    shrinkage: float | None
    """Geometric mean of final AS over the best AS that the policy was shown: below 1, the feedback was lucky."""
    shrinkage_covered: float | None = None
    """The same of covered AS."""
    usage: Usage
    """Of the stored answers."""
    spent_usd: float
    """By the ledger: answers that a kill has lost, and attempts that were begun anew, count too."""
    duration_s: float
    """Of the last run."""


def summarise(
    name: str, store: TrajectoryStore, ledger: Ledger, *, num_tasks: int, num_planned: int, duration_s: float
) -> CollectSummary:
    """Read every stored trajectory once."""
    stop_reasons: Counter[str] = Counter()
    usage = Usage()
    num_finished = num_evaluations = 0
    solved: set[str] = set()
    final_as: list[float] = []
    final_covered: list[float] = []
    ratios: list[float | None] = []
    covered_ratios: list[float | None] = []
    for trajectory in store:
        stop_reasons[str(trajectory.stop_reason or "UNFINISHED")] += 1
        num_finished += is_finished(trajectory)
        num_evaluations += len(trajectory.evaluations)
        for field in Usage.model_fields:
            setattr(usage, field, round(getattr(usage, field) + getattr(trajectory.usage, field), 9))
        final = trajectory.final_verdict
        if final is None or final.as_score is None:
            continue
        final_as.append(final.as_score)
        if final.as_covered is not None:
            final_covered.append(final.as_covered)
        if final.num_correct == len(final.graphs):
            solved.add(trajectory.task_id)
        ratios.append(trajectory.shrinkage)
        covered_ratios.append(trajectory.shrinkage_covered)
    return CollectSummary(
        name=name,
        is_complete=num_finished == num_planned,
        num_tasks=num_tasks,
        num_planned=num_planned,
        num_finished=num_finished,
        stop_reasons=dict(sorted(stop_reasons.items())),
        num_evaluations=num_evaluations,
        num_final_verdicts=len(final_as),
        num_tasks_solved=len(solved),
        median_final_as=_median(final_as),
        median_final_as_covered=_median(final_covered),
        shrinkage=_mean_ratio(ratios),
        shrinkage_covered=_mean_ratio(covered_ratios),
        usage=usage,
        spent_usd=round(ledger.spent_usd, 9),
        duration_s=round(duration_s, 3),
    )


def _mean_ratio(ratios: Iterable[float | None]) -> float | None:
    return geometric_mean([ratio for ratio in ratios if ratio])


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None
