"""Scores: ES_t, AS and their covered forms, as pure functions of verdicts. No torch, no clock.

graph verdicts -> s_hat at each tolerance level -> ES_t (geometric mean over graphs) -> AS (weighted mean over levels).
Definitions are PassNet's (sections on ES_t and AS, Appendix D). Rewards are made from these elsewhere; a reward may be
snapped, a score never is. Tables over many tasks are in summary.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eval_harness.errors import HarnessError
from eval_harness.verdict import ERROR_CLASS, TOLERANCE_LEVELS, GraphVerdict, Outcome

Scoring = Literal["passwright", "paper", "public"]

FAILURE_SCORE = 0.1
"""b: what a graph is worth at a tolerance level that does not forgive its failure."""

LAST_COMPARED_LEVEL = 1
"""From here on the levels forgive whole classes of failure; values are compared at t = 1 (PassNet's public code)."""

NEVER_FORGIVEN = 4
"""Error class of failures that no level forgives: 1(t < c) is 1 for it at every t, t = 4 included."""

TOLERANCE_WEIGHTS: dict[int, float] = {
    level: 0.001 if level <= -6 or level == 4 else 1.0 if level <= -3 else 0.8 ** (level + 3)
    for level in TOLERANCE_LEVELS
}
"""W_t of AS; they sum to 5.957424."""

_PASSWRIGHT_CLASSES = {outcome: error_class for outcome, error_class in ERROR_CLASS.items() if error_class is not None}
ERROR_CLASSES: dict[str, dict[Outcome, int]] = {
    "passwright": _PASSWRIGHT_CLASSES,
    # the paper counts what is forbidden or does not match as a runtime error
    "paper": {outcome: min(error_class, 3) for outcome, error_class in _PASSWRIGHT_CLASSES.items()},
    # the public code has 2 and 3 the other way round; a process that died or was stopped is never forgiven
    "public": _PASSWRIGHT_CLASSES
    | {Outcome.RUNTIME_ERROR: 2, Outcome.OUT_OF_MEMORY: 2, Outcome.COMPILE_ERROR: 3, Outcome.TIMEOUT: NEVER_FORGIVEN},
}
"""Scoring -> outcome -> c, the lowest tolerance level that forgives the failure."""

_COMPARED = (Outcome.CORRECT, Outcome.WRONG_VALUES)
"""Outcomes of graphs whose values were compared to the end; first_correct_t of any other outcome earns nothing."""


@dataclass(frozen=True)
class Scores:
    """The scores of one verdict; all empty when the verdict has none (an UNSTABLE graph)."""

    as_score: float | None
    """AS."""
    as_covered: float | None
    """AS with covered speedups; None also when the coverage of a correct graph was not measured."""
    es: dict[str, float]
    """Tolerance level ("-10" .. "4") -> ES_t, plain."""


@dataclass(frozen=True)
class Factors:
    """ES_t factored (PassNet, Appendix D): alpha^rate * beta^(rate * eta * p) * gamma^(1 - rate)."""

    correct_rate: float
    """lambda: share of graphs that are correct at t."""
    slowed_rate: float
    """eta: share of the correct graphs that are slower than eager."""
    alpha: float
    """Geometric mean of the speedups of correct graphs; 1 if there are none."""
    beta: float
    """Geometric mean of the speedups of correct graphs slower than eager; 1 if there are none."""
    gamma: float
    """b to the power of the sum over classes of pi_c * 1(t < c), pi_c the class shares of the failures."""
    p: float

    @property
    def es(self) -> float:
        penalty = self.beta ** (self.correct_rate * self.slowed_rate * self.p)
        return self.alpha**self.correct_rate * penalty * self.gamma ** (1 - self.correct_rate)


def score_verdict(graphs: Sequence[GraphVerdict], scoring: Scoring = "passwright", p: float = 0.0) -> Scores:
    """Every score of one task's graphs. p is the slowdown exponent. An UNSTABLE graph leaves all of them empty."""
    if not graphs or any(graph.outcome is Outcome.UNSTABLE for graph in graphs):
        return Scores(as_score=None, as_covered=None, es={})
    es = {str(level): es_t(graphs, level, scoring=scoring, p=p) for level in TOLERANCE_LEVELS}
    covered = as_score(graphs, scoring=scoring, p=p, covered=True) if has_coverage(graphs) else None
    return Scores(as_score=as_score(graphs, scoring=scoring, p=p), as_covered=covered, es=es)


def as_score(
    graphs: Sequence[GraphVerdict], *, scoring: Scoring = "passwright", p: float = 0.0, covered: bool = False
) -> float:
    """AS = prod over t of ES_t^(W_t / sum W)."""
    total = sum(TOLERANCE_WEIGHTS.values())
    return math.exp(
        sum(
            weight / total * math.log(es_t(graphs, level, scoring=scoring, p=p, covered=covered))
            for level, weight in TOLERANCE_WEIGHTS.items()
        )
    )


def es_t(
    graphs: Sequence[GraphVerdict],
    level: int,
    *,
    scoring: Scoring = "passwright",
    p: float = 0.0,
    covered: bool = False,
) -> float:
    """ES_t at one tolerance level: the geometric mean of s_hat. Raises ValueError for graphs that have no score."""
    speedups = filled_speedups(graphs)
    classes = ERROR_CLASSES[scoring]
    logs = []
    for graph, speedup in zip(graphs, speedups, strict=True):
        if speedup is not None and is_correct_at(graph, level):
            logs.append(math.log(_correct_s_hat(graph, speedup, p, covered)))
        else:
            logs.append(math.log(FAILURE_SCORE) if _is_unforgiven(classes[graph.outcome], level) else 0.0)
    return math.exp(sum(logs) / len(logs))


def factored_es_t(
    graphs: Sequence[GraphVerdict], level: int, *, scoring: Scoring = "passwright", p: float = 0.0
) -> Factors:
    """The same ES_t by its factors, which say why a score is what it is."""
    correct: list[float] = []
    unforgiven: list[bool] = []
    for graph, speedup in zip(graphs, filled_speedups(graphs), strict=True):
        if speedup is not None and is_correct_at(graph, level):
            correct.append(speedup)
        else:
            unforgiven.append(_is_unforgiven(ERROR_CLASSES[scoring][graph.outcome], level))
    slowed = [speedup for speedup in correct if speedup < 1]
    return Factors(
        correct_rate=len(correct) / len(graphs),
        slowed_rate=len(slowed) / len(correct) if correct else 0.0,
        alpha=geometric_mean(correct) or 1.0,
        beta=geometric_mean(slowed) or 1.0,
        gamma=FAILURE_SCORE ** (sum(unforgiven) / len(unforgiven)) if unforgiven else 1.0,
        p=p,
    )


def is_correct_at(graph: GraphVerdict, level: int) -> bool:
    """Whether every draw and output was within the tolerance at this level."""
    if graph.outcome not in _COMPARED or graph.first_correct_t is None:
        return False
    return graph.first_correct_t <= min(level, LAST_COMPARED_LEVEL)


def has_coverage(graphs: Sequence[GraphVerdict]) -> bool:
    """Whether covered scores can be computed: every graph that is correct at some level has a coverage."""
    return all(graph.coverage is not None for graph in graphs if is_correct_at(graph, LAST_COMPARED_LEVEL))


def filled_speedups(graphs: Sequence[GraphVerdict]) -> list[float | None]:
    """Each graph's speedup, those of a task that were not timed filled in.

    A time budget (protocol `reward`) times some of the correct graphs, drawn secretly; the others count with the
    geometric mean of these, so that AS of the sample estimates AS of the whole. Raises ValueError for an UNSTABLE graph
    and HarnessError for a correct graph when none was timed.
    """
    if not graphs:
        raise ValueError("no graphs to score")
    for graph in graphs:
        if graph.outcome is Outcome.UNSTABLE:
            raise ValueError(f"graph {graph.graph} is UNSTABLE: there is no score, evaluate again")
        if graph.speedup is not None and not (graph.speedup > 0 and math.isfinite(graph.speedup)):
            raise HarnessError(f"graph {graph.graph}: speedup {graph.speedup} is not a positive number")
    filler = geometric_mean(
        [graph.speedup for graph in graphs if graph.speedup is not None and graph.outcome in _COMPARED]
    )
    for graph in graphs:
        if graph.outcome is Outcome.CORRECT and graph.speedup is None and filler is None:
            raise HarnessError(f"graph {graph.graph} is CORRECT but no graph of its task was timed")
    return [graph.speedup if graph.speedup is not None else filler for graph in graphs]


def geometric_mean(values: Sequence[float]) -> float | None:
    """None for no values."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else None


def covered_speedup(s_hat: float, coverage: float) -> float:
    """b^(1-k) * s^k for a coverage k in 0..1.

    s is floored at b, or more coverage would lower the score of a pass more than ten times slower than eager.
    """
    return FAILURE_SCORE ** (1 - coverage) * max(s_hat, FAILURE_SCORE) ** coverage


def _correct_s_hat(graph: GraphVerdict, speedup: float, p: float, covered: bool) -> float:
    # the slowdown exponent goes onto the measured speedup, before coverage: a fast pass of little coverage is not slow,
    # and punishing it as if it were would put it below a failing one
    s_hat = speedup if speedup >= 1 else speedup ** (p + 1)
    if not covered:
        return s_hat
    if graph.coverage is None:
        raise ValueError(f"graph {graph.graph}: its coverage was not measured, so it has no covered score")
    return covered_speedup(s_hat, graph.coverage)


def _is_unforgiven(error_class: int, level: int) -> bool:
    return error_class >= NEVER_FORGIVEN or level < error_class
