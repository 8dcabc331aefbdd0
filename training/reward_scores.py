"""The score that a reward is made from: a verdict's graphs with noise-aware speedups, scored as eval_harness does."""

from __future__ import annotations

import math

from eval_harness.errors import HarnessError
from eval_harness.scores import as_score, es_t, has_coverage
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from training.reward_config import RewardConfig


def preset_score(verdict: Verdict, config: RewardConfig) -> float | None:
    """The preset's score; None for an incomplete verdict.

    Raises HarnessError for a correct graph where nothing was timed, or whose coverage is needed and was not measured.
    """
    if not verdict.complete or any(graph.outcome is Outcome.UNSTABLE for graph in verdict.graphs):
        return None
    graphs = [counted_graph(graph, config) for graph in verdict.graphs]
    scoring, p = config.scoring, config.slowdown_exponent
    if config.preset == "es_t":
        return es_t(graphs, config.tolerance_level, scoring=scoring, p=p)
    if config.preset == "as":
        return as_score(graphs, scoring=scoring, p=p)
    if not has_coverage(graphs):
        raise HarnessError(f"task {verdict.task_id}: a correct graph has no coverage, so no covered score")
    return as_score(graphs, scoring=scoring, p=p, covered=True)


def counted_graph(graph: GraphVerdict, config: RewardConfig) -> GraphVerdict:
    """The graph with the speedup that counts."""
    if graph.speedup is None:
        return graph
    speedup = noise_aware_speedup(graph.speedup, graph.speedup_interval) if config.noise_aware else graph.speedup
    if config.max_speedup is not None:
        speedup = min(speedup, config.max_speedup)
    return graph.model_copy(update={"speedup": speedup})


def noise_aware_speedup(speedup: float, interval: tuple[float, float] | None) -> float:
    """The bound of the interval nearer 1, and 1 if 1 lies between; never farther from 1 than the speedup itself."""
    if interval is None or not all(math.isfinite(each) and each > 0 for each in (speedup, *interval)):
        return speedup  # the score refuses an impossible one
    low, high = sorted(interval)
    if low <= 1.0 <= high:
        return 1.0
    if low > 1.0:
        return min(low, speedup) if speedup > 1.0 else 1.0
    return max(high, speedup) if speedup < 1.0 else 1.0


def coverage_share(verdict: Verdict) -> float:
    """Mean over the task's graphs of their coverage, 0 for one that is not CORRECT."""
    covered = (graph.coverage or 0.0 for graph in verdict.graphs if graph.outcome is Outcome.CORRECT)
    return sum(covered) / len(verdict.graphs)
