"""Summary: the figures of one run over many tasks, from verdicts alone. No torch.

All graphs of all tasks are pooled, as in PassNet's Table 1: AS of a run is not the mean of the tasks' AS. Shares are in
0..1 here; pages show them in percent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from eval_harness.scores import Scoring, filled_speedups, geometric_mean, score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict

FAST_THRESHOLDS = (1.0, 1.2, 1.5, 2.0)
"""The p of fast_p."""


class Summary(BaseModel):
    """What a table row says of one run."""

    model_config = ConfigDict(extra="forbid")

    num_tasks: int
    num_graphs: int
    num_correct: int
    """Graphs with the outcome CORRECT."""
    num_timed: int
    """Correct graphs with a measured speedup; fewer than num_correct under a time budget."""
    incomplete_tasks: list[str]
    """Tasks whose verdict has no score (UNSTABLE). While there is one, the run has no AS: never fewer graphs."""
    as_score: float | None
    as_covered: float | None
    """None also when a correct graph has no measured coverage."""
    es: dict[str, float]
    """Tolerance level -> ES_t over the pooled graphs."""
    fast: dict[str, float]
    """"1", "1.2", "1.5", "2" -> share of all graphs that are correct and at least that fast, by point estimate."""
    fast_by_interval: dict[str, float]
    """The same by the lower bound of the speedup's interval; empty when no timed graph has an interval."""
    sample_success: float
    """Share of tasks with every graph correct."""
    subgraph_success: float
    """Share of graphs that are correct."""
    g_mean: float | None
    """Geometric mean speedup of correct graphs."""
    mean_coverage: float | None
    """Mean coverage of correct graphs."""
    outcomes: dict[str, int]
    """Outcome -> number of graphs, most frequent first."""
    violations_by_rule: dict[str, int]
    """Rule id -> number of tasks whose candidate broke it."""
    num_violating_tasks: int
    """Tasks whose candidate broke any rule."""
    num_batch_variant: int
    """Graphs found to depend on their batch, by the static rules or by running them, enforced or only reported."""
    num_batch_checked: int
    """Graphs that were checked for it and have a batch; the rate of variant ones is of these."""
    num_batch_not_applicable: int = 0
    """Graphs that were checked for it and have no batch."""
    batch_invariance_rate: float | None = None
    """Share of the checked graphs with a batch that do not depend on it; None: none was checked."""


def summarize(verdicts: Iterable[Verdict], *, scoring: Scoring = "passwright", p: float = 0.0) -> Summary:
    """Pool the verdicts of one run, one a task. Raises ValueError for none, or for two of one task."""
    verdicts = list(verdicts)
    if not verdicts:
        raise ValueError("no verdicts to summarize")
    doubled = [task_id for task_id, count in Counter(verdict.task_id for verdict in verdicts).items() if count > 1]
    if doubled:
        raise ValueError(f"two verdicts of task {doubled[0]}; a run has one a task")
    graphs = [graph for verdict in verdicts for graph in verdict.graphs]
    incomplete = [verdict.task_id for verdict in verdicts if not is_scored(verdict)]
    # each task fills its own untimed graphs, so that a speedup of one task says nothing about another
    scores = score_verdict([] if incomplete else pooled_graphs(verdicts), scoring, p)
    variant = [is_batch_variant(graph) for graph in graphs]
    num_variant, num_checked = variant.count(True), len(variant) - variant.count(None)
    correct = [graph for graph in graphs if graph.outcome is Outcome.CORRECT]
    timed = [graph for graph in correct if graph.speedup is not None]
    return Summary(
        num_tasks=len(verdicts),
        num_graphs=len(graphs),
        num_correct=len(correct),
        num_timed=len(timed),
        incomplete_tasks=incomplete,
        as_score=scores.as_score,
        as_covered=scores.as_covered,
        es=scores.es,
        fast=_fast(timed, len(graphs), by_interval=False),
        fast_by_interval=_fast(timed, len(graphs), by_interval=True),
        sample_success=sum(verdict.num_correct == len(verdict.graphs) for verdict in verdicts) / len(verdicts),
        subgraph_success=len(correct) / len(graphs),
        g_mean=geometric_mean([graph.speedup for graph in timed if graph.speedup is not None]),
        mean_coverage=_mean([graph.coverage for graph in correct if graph.coverage is not None]),
        outcomes=dict(Counter(graph.outcome.value for graph in graphs).most_common()),
        violations_by_rule=count_violations(verdicts),
        num_violating_tasks=sum(bool(verdict.all_violations) for verdict in verdicts),
        num_batch_variant=num_variant,
        num_batch_checked=num_checked,
        num_batch_not_applicable=sum(has_no_batch(graph) for graph in graphs),
        batch_invariance_rate=1 - num_variant / num_checked if num_checked else None,
    )


def is_batch_variant(graph: GraphVerdict) -> bool | None:
    """Whether a row's result follows its batch; None where that was not asked, or the graph has no batch."""
    record = graph.batch_invariance
    if graph.outcome is Outcome.BATCH_VARIANT or (record and record.get("static", {}).get("findings")):
        return True
    outcome = record.get("outcome") if record else None
    return None if outcome in (None, "not applicable") else outcome != "invariant"


def has_no_batch(graph: GraphVerdict) -> bool:
    """Whether the check of batch invariance came to that the graph has no batch."""
    record = graph.batch_invariance
    return record is not None and "outcome" in record and is_batch_variant(graph) is None


def is_scored(verdict: Verdict) -> bool:
    """Whether the verdict counts: complete and without an UNSTABLE graph."""
    return verdict.complete and all(graph.outcome is not Outcome.UNSTABLE for graph in verdict.graphs)


def pooled_graphs(verdicts: Sequence[Verdict]) -> list[GraphVerdict]:
    """All graphs of scored verdicts, an untimed graph carrying the mean speedup of the timed ones of its own task."""
    pooled: list[GraphVerdict] = []
    for verdict in verdicts:
        for graph, speedup in zip(verdict.graphs, filled_speedups(verdict.graphs), strict=True):
            fill = graph.speedup is None and graph.first_correct_t is not None and speedup is not None
            pooled.append(graph.model_copy(update={"speedup": speedup}) if fill else graph)
    return pooled


def count_violations(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Rule id -> number of verdicts that have it, most frequent first."""
    counts = Counter(rule for verdict in verdicts for rule in {violation.rule for violation in verdict.all_violations})
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def fast_key(threshold: float) -> str:
    """Key of Summary.fast for a threshold: "1", "1.2", "1.5", "2"."""
    return f"{threshold:g}"


def _fast(timed: Sequence[GraphVerdict], num_graphs: int, *, by_interval: bool) -> dict[str, float]:
    if by_interval:
        speeds = [graph.speedup_interval[0] for graph in timed if graph.speedup_interval is not None]
        if not speeds:
            return {}
    else:
        speeds = [graph.speedup for graph in timed if graph.speedup is not None]
    return {
        fast_key(threshold): sum(speed >= threshold for speed in speeds) / num_graphs for threshold in FAST_THRESHOLDS
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
