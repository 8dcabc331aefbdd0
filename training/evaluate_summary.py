"""EvaluationSummary: summary.json of a student's evaluation, and its headline as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from eval_harness.report_row import ReportRow
from eval_harness.report_row_data import row_data
from eval_harness.scores import Scoring
from eval_harness.summary import Summary, summarize
from eval_harness.verdict import Verdict
from training.evaluate_rows import count_stop_reasons
from trajectories.environment import best_index
from trajectories.record import Trajectory


class EvaluationSummary(BaseModel):
    """summary.json of a student's evaluation."""

    model_config = ConfigDict(extra="forbid")

    name: str
    student: str
    num_attempts: int
    first_attempt: Summary
    """The headline: one attempt a task, no choice among several."""
    by_attempt: list[Summary]
    """One summary for each attempt index."""
    best_of: Summary | None
    """Of each task's best attempt by its final verdict; None for one attempt. Chosen by luck too: not a headline."""
    stop_reasons: dict[str, int]
    num_submitted: int
    """Attempts with at least one evaluated pass."""
    num_malformed_calls: int
    mean_turns: float
    output_tokens: int
    row: dict[str, Any] = {}
    """The row as a report has it (eval_harness/report_schema.py, Row), without groups."""
    shard: str | None = None
    """The share of the tasks that this is of."""
    serving: dict[str, Any] = {}
    """How the student was served, by the last run that did."""


def summarize_evaluation(
    row: ReportRow,
    attempts: Sequence[Sequence[Trajectory]],
    verdicts: Sequence[Mapping[str, Verdict]],
    *,
    student: str,
    scoring: Scoring,
    p: float,
    shard: str | None = None,
    serving: Mapping[str, Any] | None = None,
) -> EvaluationSummary:
    """The summary of attempts (by attempt index, then by task) with their fresh verdicts."""
    summaries = [summarize(by_task.values(), scoring=scoring, p=p) for by_task in verdicts]
    flat = [trajectory for of_index in attempts for trajectory in of_index]
    best = summarize(_best_by_task(verdicts), scoring=scoring, p=p) if len(verdicts) > 1 else None
    return EvaluationSummary(
        name=row.name,
        student=student,
        num_attempts=len(attempts),
        first_attempt=summaries[0],
        by_attempt=summaries,
        best_of=best,
        stop_reasons=count_stop_reasons(flat),
        num_submitted=sum(bool(trajectory.evaluations) for trajectory in flat),
        num_malformed_calls=sum(trajectory.num_malformed_calls for trajectory in flat),
        mean_turns=sum(trajectory.num_turns for trajectory in flat) / len(flat),
        output_tokens=sum(trajectory.usage.output_tokens for trajectory in flat),
        row={key: value for key, value in row_data(row).items() if key not in ("groups", "settings", "summary")},
        shard=shard,
        serving=dict(serving or {}),
    )


def render_summary(summary: EvaluationSummary) -> str:
    """The headline of an evaluation in a few lines."""
    first = summary.first_attempt
    score = "none (unstable)" if first.as_score is None else f"{first.as_score:.3f}"
    covered = "" if first.as_covered is None else f", covered {first.as_covered:.3f}"
    figures = summary.row.get("figures", {})
    bounds = (figures.get("as_score") or {}).get("interval")
    interval = f" (95% over tasks: {bounds[0]:.3f}-{bounds[1]:.3f})" if bounds else ""
    stops = ", ".join(f"{count} {reason}" for reason, count in summary.stop_reasons.items())
    calls = f"{summary.num_submitted} attempts evaluated a pass, {summary.num_malformed_calls} malformed calls"
    lines = [
        f"AS {score}{interval}{covered} over {first.num_graphs} graphs of {first.num_tasks} tasks (first attempts)",
        f"{first.num_correct} graphs correct; {100 * first.sample_success:.0f}% of tasks with every graph correct",
        f"{calls}; {stops}",
    ]
    if (shrinkage := summary.row.get("fresh_over_feedback")) is not None:
        lines.append(f"fresh AS is {shrinkage:.3f} times the best AS that the student was shown")
    if several := summary.row.get("several_attempts"):
        rates = ", ".join(f"pass@{k} {100 * rate:.1f}%" for k, rate in several["pass_at_k"].items())
        best = ", ".join(f"best of {k} AS {value:.3f}" for k, value in several["best_of_k"].items())
        lines += [rates, best] if rates else ["no pass@k: an attempt has no score"]
    if first.num_batch_checked:
        invariant = first.num_batch_checked - first.num_batch_variant
        lines.append(
            f"batch invariance: {invariant} of {first.num_batch_checked} checked graphs, "
            f"{first.num_batch_not_applicable} have no batch"
        )
    return "\n".join(lines)


def _best_by_task(verdicts: Sequence[Mapping[str, Verdict]]) -> list[Verdict]:
    best = []
    for task_id in verdicts[0]:
        candidates = [by_task[task_id] for by_task in verdicts]
        index = best_index(candidates)
        best.append(candidates[0 if index is None else index])
    return best
