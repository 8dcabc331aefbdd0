"""Figures of a run as sums over tasks, and their 95% intervals by bootstrap over tasks. Pure functions; no torch.

Every figure of a table is a ratio of two sums over tasks, if need be in logs: log AS of pooled graphs is the mean of
the graphs' log AS. So a resample is a product of counts and sums. Graphs of one task are alike, hence tasks are drawn,
not graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eval_harness.scores import Scoring, as_score, has_coverage
from eval_harness.summary import is_scored, pooled_graphs
from eval_harness.verdict import Outcome, Verdict

NUM_RESAMPLES = 2000
SEED = 0
"""Fixed, so that a report made twice is the same."""
LEVEL = 0.95
LOG_FIGURES = frozenset({"as_score", "as_covered", "g_mean"})
"""Figures that are geometric means; two of them are compared by their ratio, the others by their difference."""
FIGURES = ("as_score", "as_covered", "fast_1", "sample_success", "subgraph_success", "g_mean")


@dataclass(frozen=True)
class Sums:
    """One task's share in a figure: numerator and denominator (of geometric means: of the log)."""

    numerator: float
    denominator: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.numerator + other.numerator, self.denominator + other.denominator)

    def scaled(self, factor: float) -> Sums:
        return Sums(self.numerator * factor, self.denominator * factor)


TaskSums = Mapping[str, Sums]
"""Figure -> one task's share; a figure that the verdict does not have is left out."""


def task_sums(verdict: Verdict, *, scoring: Scoring = "passwright", p: float = 0.0) -> TaskSums | None:
    """One verdict's share in every figure; None if it has no score (UNSTABLE, or nothing was timed)."""
    if not is_scored(verdict) or verdict.as_score is None:
        return None
    graphs = pooled_graphs([verdict])
    count = len(graphs)
    correct = [graph for graph in graphs if graph.outcome is Outcome.CORRECT]
    # of the graphs themselves, as in the summary: filled-in speedups are estimates
    speeds = [g.speedup for g in verdict.graphs if g.outcome is Outcome.CORRECT and g.speedup is not None]
    sums = {
        "as_score": Sums(count * math.log(as_score(graphs, scoring=scoring, p=p)), count),
        "fast_1": Sums(sum(speed >= 1 for speed in speeds), count),
        "sample_success": Sums(float(len(correct) == count), 1),
        "subgraph_success": Sums(len(correct), count),
        "g_mean": Sums(sum(math.log(speed) for speed in speeds), len(speeds)),
    }
    if has_coverage(graphs):
        covered = as_score(graphs, scoring=scoring, p=p, covered=True)
        sums["as_covered"] = Sums(count * math.log(covered), count)
    return sums


def mean_sums(attempts: Sequence[TaskSums]) -> TaskSums:
    """The mean share of several attempts at one task; of figures that each of them has."""
    common = [name for name in FIGURES if all(name in sums for sums in attempts)]
    return {name: sum((sums[name] for sums in attempts), Sums(0, 0)).scaled(1 / len(attempts)) for name in common}


def figure(name: str, sums: Sequence[TaskSums]) -> float | None:
    """The figure over tasks; None where a task lacks it, or nothing counts into it."""
    if not sums or any(name not in each for each in sums):
        return None
    total = sum((each[name] for each in sums), Sums(0, 0))
    if not total.denominator:
        return None
    value = total.numerator / total.denominator
    return math.exp(value) if name in LOG_FIGURES else value


def interval(name: str, sums: Sequence[TaskSums]) -> tuple[float, float] | None:
    """95% percentile interval of a figure over resampled tasks; None for fewer than two tasks, or no figure."""
    if len(sums) < 2 or figure(name, sums) is None:
        return None
    values = _resampled(name, sums, _counts(len(sums)))
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = _bounds(values)
    return (math.exp(low), math.exp(high)) if name in LOG_FIGURES else (low, high)


def figures_with_intervals(sums: Sequence[TaskSums]) -> dict[str, dict[str, Any]]:
    """Figure -> {"value", "interval"} over tasks."""
    return {
        name: {"value": value, "interval": interval(name, sums)}
        for name in FIGURES
        if (value := figure(name, sums)) is not None
    }


def paired_change(name: str, first: Sequence[TaskSums], second: Sequence[TaskSums]) -> dict[str, Any] | None:
    """How much more the second run has of a figure, on the same tasks in the same order.

    {"change", "interval", "is_ratio"}: second over first for geometric means, else second minus first. None where one
    of them lacks the figure. Raises ValueError for different numbers of tasks.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} tasks against {len(second)}: compare runs on the same tasks")
    before, after = figure(name, first), figure(name, second)
    if before is None or after is None:
        return None
    is_ratio = name in LOG_FIGURES
    bounds = None
    if len(first) >= 2:
        counts = _counts(len(first))
        values = _resampled(name, second, counts) - _resampled(name, first, counts)
        values = values[np.isfinite(values)]
        if len(values):
            low, high = _bounds(values)
            bounds = (math.exp(low), math.exp(high)) if is_ratio else (low, high)
    return {"change": after / before if is_ratio else after - before, "interval": bounds, "is_ratio": is_ratio}


def _counts(num_tasks: int) -> Any:
    """(NUM_RESAMPLES, num_tasks): how often each task was drawn; the same for every figure, so pairs stay pairs."""
    return np.random.default_rng(SEED).multinomial(num_tasks, [1 / num_tasks] * num_tasks, size=NUM_RESAMPLES)


def _resampled(name: str, sums: Sequence[TaskSums], counts: Any) -> Any:
    numerators = np.array([each[name].numerator for each in sums])
    denominators = np.array([each[name].denominator for each in sums], dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):  # a draw in which nothing counts has no value
        return (counts @ numerators) / (counts @ denominators)


def _bounds(values: Any) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
