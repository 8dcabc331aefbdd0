"""One row of a report: everything that is counted from its verdicts and from what the policy was shown. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval_harness.report_facts import ShownEvaluation
from eval_harness.report_groups import group_figures
from eval_harness.report_row import ReportRow, protocol_scoring
from eval_harness.resampling import figures_with_intervals, task_sums
from eval_harness.scores import Scoring, geometric_mean
from eval_harness.several_attempts import summarize_attempts
from eval_harness.summary import summarize
from eval_harness.turn_figures import best_so_far, summarize_submissions, summarize_turns
from eval_harness.verdict import GraphVerdict


def row_data(row: ReportRow, reference: Mapping[str, GraphVerdict] | None = None) -> dict[str, Any]:
    """report_schema.Row. reference: task id + graph -> a verdict that knows the eager time (report_groups)."""
    scoring, p = row_scoring(row)
    summary = summarize(row.verdicts.values(), scoring=scoring, p=p)
    all_shown = [evaluations for of_task in row.shown.values() for evaluations in of_task]
    return {
        "name": row.name,
        "note": row.note,
        "attempts": row.attempts,
        "totals": row.totals,
        "summary": summary.model_dump(),
        "figures": row_figures(row),
        "fresh_over_feedback": _shrinkage(row, row.feedback_scores, "as_score"),
        "fresh_over_feedback_covered": _shrinkage(row, row.feedback_covered, "as_covered"),
        "as_by_turn": row.as_by_turn,
        "covered_by_turn": row.covered_by_turn,
        "several_attempts": _several(row, scoring, p),
        "turns": summarize_turns({task: of_task[0] for task, of_task in row.shown.items()}) if row.shown else None,
        "submissions": summarize_submissions(all_shown) if row.shown else None,
        "groups": group_figures(
            row.verdicts.values(), row.graph_facts, scoring=scoring, p=p, reference=reference
        ),
        "run": row.run,
        "step": row.step,
        "settings": row.settings,
    }  # fmt: skip


def row_figures(row: ReportRow) -> dict[str, dict[str, Any]]:
    """The main figures with intervals over tasks; empty while a task has no score: never fewer tasks."""
    scoring, p = row_scoring(row)
    sums = [task_sums(verdict, scoring=scoring, p=p) for verdict in row.verdicts.values()]
    scored = [each for each in sums if each is not None]
    return figures_with_intervals(scored) if len(scored) == len(sums) else {}


def row_scoring(row: ReportRow) -> tuple[Scoring, float]:
    """Scoring and slowdown exponent: as the row states its protocol, else of the preset of that name."""
    scoring, p = protocol_scoring(next(iter(row.verdicts.values())).protocol)
    return row.protocol_settings.get("scoring", scoring), row.protocol_settings.get("slowdown_exponent", p)


def _shrinkage(row: ReportRow, shown: Mapping[str, float], score: str) -> float | None:
    ratios = [
        fresh / best
        for task_id, best in shown.items()
        if best > 0 and (verdict := row.verdicts.get(task_id)) and (fresh := getattr(verdict, score)) is not None
    ]
    return geometric_mean(ratios)


def _several(row: ReportRow, scoring: Scoring, p: float) -> dict[str, Any] | None:
    if not row.attempt_verdicts:
        return None
    shown = {task: [_best_shown(each) for each in of_task] for task, of_task in row.shown.items()}
    return summarize_attempts(row.attempt_verdicts, shown, scoring=scoring, p=p)


def _best_shown(evaluations: Sequence[ShownEvaluation]) -> float | None:
    """What an attempt is chosen by among several: the best covered AS that it was shown, else the best AS."""
    best = best_so_far(evaluations, max((each.turn for each in evaluations), default=0))
    if best is None:
        return None
    return best.as_covered if best.as_covered is not None else best.as_score
