"""Intervals of what a bench samples: a share of tasks, and a mean over graphs that come in tasks. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import betaincinv, stdtrit

CONFIDENCE = 0.95


def binomial_interval(count: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a share count / total. Raises ValueError for an empty sample."""
    if not 0 <= count <= total or total == 0:
        raise ValueError(f"{count} of {total} is no share")
    tail = (1 - confidence) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return low, high


def mean_interval(groups: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The interval of the mean over all values; None for fewer than two groups with values.

    groups: the values of each task. Those of one task are alike, so the tasks are what was drawn: the variance is that
    of a ratio of sums over tasks, with Student's quantile for one degree of freedom less than there are tasks.
    """
    filled = [values for values in groups if values]
    count, total = len(filled), sum(len(values) for values in filled)
    if count < 2:
        return None
    mean = math.fsum(math.fsum(values) for values in filled) / total
    squares = math.fsum((math.fsum(values) - mean * len(values)) ** 2 for values in filled)
    error = math.sqrt(count / (count - 1) * squares) / total
    reach = float(stdtrit(count - 1, 0.5 + confidence / 2)) * error
    return mean - reach, mean + reach
