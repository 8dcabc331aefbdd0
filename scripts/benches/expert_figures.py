"""The figures of `passwright bench expert`, from its records alone: shares, rows, groups, the worst tasks. No torch.

A graph without a pass counts as one that nothing matched. A graph whose measurement was unsteady, or on which the
harness failed, is in no mean, and in a comparison it is in no row.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from data.graph import Graph
from data.task import Task
from data.task_stats import UNSTATED, dtype_of
from eval_harness.scores import Scoring, as_score, geometric_mean, has_coverage
from eval_harness.verdict import GraphVerdict, Outcome
from scripts.benches.expert_records import ComparisonRecord, Member, TaskRecord
from scripts.benches.intervals import binomial_interval, mean_interval

OVERHEAD_US = 20.0
"""An eager call shorter than this is the starting of operators, not their work."""
NUM_WORST = 15
NO_PASS = "no pass"
_NUMBERED = re.compile(r"\b(in|w|tmp|s)_\d+\b|\b\d+\b")

Groups = Sequence[Sequence[GraphVerdict]]
"""Graphs of each task."""


class Scorer:
    """Rows of figures under one protocol's scoring."""

    def __init__(self, scoring: Scoring = "passwright", p: float = 0.0, *, is_timed: bool = True) -> None:
        self.scoring, self.p, self.is_timed = scoring, p, is_timed

    def row(self, groups: Groups) -> dict[str, Any]:
        """Success, AS, covered AS, geometric means; intervals over tasks. A mean of nothing is None."""
        graphs = [graph for group in groups for graph in group]
        scored = [[graph for graph in group if is_scored(graph)] for group in groups] if self.is_timed else []
        flat = [graph for group in scored for graph in group]
        covered = as_score(flat, scoring=self.scoring, p=self.p, covered=True) if flat and has_coverage(flat) else None
        correct = [graph for graph in graphs if graph.outcome is Outcome.CORRECT]
        coverages = [graph.coverage for graph in correct if graph.coverage is not None]
        return {
            "tasks": len(groups),
            "graphs": len(graphs),
            "correct": len(correct),
            "subgraph_success": len(correct) / len(graphs) if graphs else None,
            "as_score": as_score(flat, scoring=self.scoring, p=self.p) if flat else None,
            "as_interval": _exponential(mean_interval([[self.log_as(graph) for graph in group] for group in scored])),
            "as_covered": covered,
            "g_mean": geometric_mean(_speedups(correct)),
            "g_interval": _log_interval([_speedups(_correct(group)) for group in groups]),
            "gpu_g_mean": geometric_mean(_gpu_speedups(correct)),
            "gpu_interval": _log_interval([_gpu_speedups(_correct(group)) for group in groups]),
            "coverage": sum(coverages) / len(coverages) if coverages else None,
            "not_scored": len(graphs) - len(flat) if self.is_timed else None,
        }

    def log_as(self, graph: GraphVerdict) -> float:
        """log AS of one graph; AS of many is the exponential of their mean."""
        return math.log(as_score([graph], scoring=self.scoring, p=self.p))

    def against(self, ours: Groups, theirs: Groups) -> dict[str, Any]:
        """Ours over theirs on the same graphs in the same order: AS, and speedups where both are CORRECT."""
        pairs = [list(zip(a, b, strict=True)) for a, b in zip(ours, theirs, strict=True)]
        scores = [[self.log_as(a) - self.log_as(b) for a, b in group] for group in pairs]
        both = [
            [(a, b) for a, b in group if a.outcome is b.outcome is Outcome.CORRECT and a.speedup and b.speedup]
            for group in pairs
        ]
        ratios = [[(a.speedup or 1.0) / (b.speedup or 1.0) for a, b in group] for group in both]
        gpu = [[a.gpu_speedup / b.gpu_speedup for a, b in g if a.gpu_speedup and b.gpu_speedup] for g in both]
        flat = [value for group in scores for value in group]
        all_ratios = [value for group in ratios for value in group]
        return {
            "graphs": len(flat),
            "as_ratio": math.exp(sum(flat) / len(flat)) if flat else None,
            "as_ratio_interval": _exponential(mean_interval(scores)),
            "both_correct": len(all_ratios),
            "faster": sum(ratio > 1 for ratio in all_ratios),
            "ratio": geometric_mean(all_ratios),
            "ratio_interval": _log_interval(ratios),
            "gpu_ratio": geometric_mean([value for group in gpu for value in group]),
        }


def is_scored(graph: GraphVerdict) -> bool:
    """Whether the graph can be in a mean: not unsteady, and timed where it is correct."""
    return graph.outcome is not Outcome.UNSTABLE and (graph.outcome is not Outcome.CORRECT or graph.speedup is not None)


def graphs_of(record: TaskRecord, task: Task) -> list[GraphVerdict]:
    """The verdicts of a task's graphs; without a pass, nothing matched."""
    if record.verdict is not None:
        return record.verdict.graphs
    return [
        GraphVerdict(graph=graph.name, graph_hash=graph.content_hash, outcome=Outcome.NO_MATCH, message=NO_PASS)
        for graph in task.graphs
    ]


def is_correct(record: TaskRecord) -> bool:
    """Every graph CORRECT."""
    return record.verdict is not None and record.verdict.num_correct == len(record.verdict.graphs)


def share_figures(records: Sequence[TaskRecord]) -> dict[str, Any]:
    """Tasks with every graph CORRECT, of those on which the harness did not fail; the exact binomial interval."""
    judged = [record for record in records if record.error is None]
    count = sum(is_correct(record) for record in judged)
    return {
        "correct": count,
        "of": len(judged),
        "share": count / len(judged) if judged else None,
        "interval": binomial_interval(count, len(judged)) if judged else None,
    }


def plan_figures(records: Sequence[TaskRecord]) -> dict[str, Any]:
    """Tasks by what the expert planned, and by each of its reasons, the numbers of names left out."""
    states = Counter(record.plan.state for record in records)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        stated = record.plan.refused or ([] if record.plan.state == "whole" else ["no reason given"])
        for reason in {_NUMBERED.sub(lambda found: found[1] or "N", text) for text in stated}:
            reasons[reason][record.plan.state] += 1
    return {
        "plans": {state: states[state] for state in ("whole", "part", "none", "error")},
        "reasons": dict(sorted(reasons.items(), key=lambda item: (-item[1].total(), item[0]))),
        "seconds": sum(record.plan.seconds for record in records),
    }


def outcome_figures(records: Sequence[TaskRecord], tasks: Mapping[str, Task]) -> dict[str, int]:
    """Outcome -> graphs, "no pass" apart; most frequent first."""
    counts = Counter(
        str(graph.outcome) if record.verdict else NO_PASS
        for record in records
        if record.error is None
        for graph in graphs_of(record, tasks[record.task_id])
    )
    return dict(counts.most_common())


def compared_rows(
    compared: Sequence[Member],
    records: Sequence[TaskRecord],
    comparisons: Sequence[ComparisonRecord],
    *,
    guards: bool,
    rows: Sequence[str],
) -> tuple[list[Member], dict[str, list[GraphVerdict]]]:
    """The members that every row has a scored verdict of, and each row's verdicts of them in that order.

    A pass that fails without guards counts with that verdict behind them too.
    """
    verdicts = {record.task_id: record.verdict for record in records}
    found: dict[str, list[GraphVerdict]] = {row: [] for row in rows}
    members = []
    for member in compared:
        task = verdicts[member.task_id]
        own = next((graph for graph in task.graphs if graph.graph == member.graph), None) if task else None
        of_row = {row: own if row == "expert" else _compared(member, comparisons, row, guards) for row in rows}
        if guards and own is not None and own.outcome is Outcome.CORRECT:
            of_row["expert"] = _compared(member, comparisons, "expert", guards)
        scored = {row: graph for row, graph in of_row.items() if graph is not None and is_scored(graph)}
        if len(scored) == len(rows):
            members.append(member)
            for row, graph in scored.items():
                found[row].append(graph)
    return members, found


def _compared(member: Member, comparisons: Sequence[ComparisonRecord], row: str, guards: bool) -> GraphVerdict | None:
    """A baseline's verdict of a graph holds wherever the graph comes again; a pass is one task's own."""
    of_row = [record for record in comparisons if (record.row, record.guards) == (row, guards)]
    if row == "expert":
        of_row = [record for record in of_row if member in record.members]
    known = [graph for record in of_row if (graph := record.verdict_of(member.graph_hash)) is not None]
    return known[-1] if known else None


def groups_of(graph: Graph, verdict: GraphVerdict) -> tuple[str, str, str]:
    """The graph's operator family, its dtype, and how long eager takes."""
    eager_us, length = verdict.reference_latency_us, "eager not timed"
    if eager_us is not None:
        length = f"eager {'under' if eager_us < OVERHEAD_US else 'from'} {OVERHEAD_US:g} us"
    return graph.family or UNSTATED, dtype_of(graph), length


def worst_tasks(records: Sequence[TaskRecord], tasks: Mapping[str, Task]) -> list[dict[str, Any]]:
    """Of the tasks with a pass: fewest graphs CORRECT first, then the slowest."""
    rows: list[dict[str, Any]] = []
    for record in records:
        if record.verdict is None:
            continue
        graphs = record.verdict.graphs
        failing = [graph for graph in graphs if graph.outcome is not Outcome.CORRECT]
        g_mean = geometric_mean(_speedups(_correct(graphs)))
        if not failing and g_mean is None:
            continue  # nothing is known against it
        rows.append(
            {
                "task": record.task_id,
                "title": tasks[record.task_id].facts.get("title", ""),
                "outcome": str(failing[0].outcome) if failing else str(Outcome.CORRECT),
                "correct": len(graphs) - len(failing),
                "graphs": len(graphs),
                "g_mean": g_mean,
                "why": _why(failing[0]) if failing else _slow(graphs),
            }
        )
    rows.sort(key=lambda row: (row["correct"] / row["graphs"], row["g_mean"] or 0.0))
    return rows[:NUM_WORST]


def _why(graph: GraphVerdict) -> str:
    return " ".join(graph.message.split()) or "no message"


def _slow(graphs: Sequence[GraphVerdict]) -> str:
    slowest = min(graphs, key=lambda graph: graph.speedup or math.inf)
    eager_us = f"{slowest.reference_latency_us:.1f}" if slowest.reference_latency_us else "?"
    gpu = f", x{slowest.gpu_speedup:.2f} of GPU time" if slowest.gpu_speedup else ""
    covered = f", coverage {slowest.coverage:.2f}" if slowest.coverage is not None else ""
    return f"x{slowest.speedup or 0:.2f} where eager takes {eager_us} us{gpu}{covered}"


def _correct(graphs: Sequence[GraphVerdict]) -> list[GraphVerdict]:
    return [graph for graph in graphs if graph.outcome is Outcome.CORRECT]


def _speedups(graphs: Sequence[GraphVerdict]) -> list[float]:
    return [graph.speedup for graph in graphs if graph.speedup is not None]


def _gpu_speedups(graphs: Sequence[GraphVerdict]) -> list[float]:
    return [graph.gpu_speedup for graph in graphs if graph.gpu_speedup]


def _log_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    return _exponential(mean_interval([[math.log(value) for value in group] for group in groups]))


def _exponential(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
