"""Rows of a report from the attempts of an evaluation: the student's own, and those of the baselines. No evaluation.

An attempt that never submitted a pass counts as NO_MATCH on every graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data.task import Task
from eval_harness.report_facts import ShownEvaluation, facts_of_tasks
from eval_harness.report_row import ReportRow, protocol_scoring, unsubmitted_verdict
from eval_harness.scores import score_verdict
from eval_harness.turn_figures import as_by_turn as curve_by_turn
from eval_harness.turn_figures import best_so_far
from eval_harness.verdict import Verdict
from trajectories.record import Trajectory

BASELINE_NAMES = {"eager": "Eager", "inductor": "TorchInductor"}


def attempt_verdicts(
    tasks: Sequence[Task], attempts: Sequence[Sequence[Trajectory]], *, protocol: str, device: str
) -> list[dict[str, Verdict]]:
    """For each attempt index, task_id -> the fresh verdict of its best pass, or that of nothing submitted."""
    like = next((each.final_verdict for row in attempts for each in row if each.final_verdict is not None), None)
    return [
        {
            task.task_id: trajectory.final_verdict
            or unsubmitted_verdict(task, protocol=protocol, device=device, like=like)
            for task, trajectory in zip(tasks, row, strict=True)
        }
        for row in attempts
    ]


def student_row(
    name: str,
    tasks: Sequence[Task],
    attempts: Sequence[Sequence[Trajectory]],
    verdicts: Sequence[Mapping[str, Verdict]],
    *,
    protocol_settings: Mapping[str, Any],
    shown_protocol: str,
    device: str,
    totals: Mapping[str, float] | None = None,
    **fields: Any,
) -> ReportRow:
    """The student's row: first attempts are the headline.

    attempts, verdicts: by attempt index, in the order of the tasks. shown_protocol: of the verdicts that the student
    saw. totals: further sums, beside those of the trajectories. fields: run, step, settings, note of the row.
    """
    shown = {
        task.task_id: [_shown(row[index]) for row in attempts] for index, task in enumerate(tasks)
    }  # fmt: skip
    first = {task_id: of_task[0] for task_id, of_task in shown.items()}
    best = {task_id: best_so_far(each, 10**9) for task_id, each in first.items()}
    num_graphs = {task.task_id: len(task.graphs) for task in tasks}
    nothing = _nothing(tasks[0], shown_protocol, device)
    num_turns = max((trajectory.num_turns for trajectory in attempts[0]), default=0)
    several = len(attempts) > 1
    return ReportRow(
        name=name,
        verdicts=dict(verdicts[0]),
        attempts=sum(len(row) for row in attempts),
        totals=sum_totals([trajectory for row in attempts for trajectory in row]) | dict(totals or {}),
        feedback_scores={task: each.as_score for task, each in best.items() if each and each.as_score is not None},
        feedback_covered={task: each.as_covered for task, each in best.items() if each and each.as_covered is not None},
        as_by_turn=curve_by_turn(first, num_graphs, nothing, num_turns=num_turns),
        covered_by_turn=curve_by_turn(first, num_graphs, nothing, num_turns=num_turns, covered=True),
        protocol_settings=dict(protocol_settings),
        attempt_verdicts={task.task_id: [row[task.task_id] for row in verdicts] for task in tasks} if several else {},
        shown=shown,
        graph_facts=facts_of_tasks(list(tasks)),
        **fields,
    )


def baseline_row(
    baseline: str, verdicts: Mapping[str, Verdict], tasks: Sequence[Task], *, protocol_settings: Mapping[str, Any]
) -> ReportRow:
    """A baseline's row, from verdicts of the same judge."""
    return ReportRow(
        name=BASELINE_NAMES.get(baseline, baseline),
        verdicts=dict(verdicts),
        note="measured by the same judge in the same run",
        protocol_settings=dict(protocol_settings),
        graph_facts=facts_of_tasks(list(tasks)),
    )


def sum_totals(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Sums over attempts: tokens, dollars of priced endpoints, turns, seconds of answers, judges and wall clock."""
    judge_s = 0.0
    for trajectory in trajectories:
        verdicts = [record.verdict for record in trajectory.evaluations]
        verdicts += [trajectory.final_verdict] if trajectory.final_verdict is not None else []
        judge_s += sum(verdict.timings.get("total", 0.0) for verdict in verdicts if not verdict.from_cache)
    usage = [trajectory.usage for trajectory in trajectories]
    return {
        "input_tokens": sum(each.input_tokens for each in usage),
        "cached_tokens": sum(each.cached_tokens for each in usage),
        "output_tokens": sum(each.output_tokens for each in usage),
        "reasoning_tokens": sum(each.reasoning_tokens for each in usage),
        "cost_usd": round(sum(each.cost_usd for each in usage), 6),
        "turns": sum(trajectory.num_turns for trajectory in trajectories),
        "evaluations": sum(len(trajectory.evaluations) for trajectory in trajectories),
        "malformed_calls": sum(trajectory.num_malformed_calls for trajectory in trajectories),
        "answer_s": round(sum(each.latency_s for each in usage), 1),
        "evaluation_s": round(judge_s, 1),
        "wall_s": round(sum(trajectory.duration_s for trajectory in trajectories), 1),
    }


def count_stop_reasons(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """Stop reason -> attempts, by name."""
    return dict(sorted(Counter(str(trajectory.stop_reason) for trajectory in trajectories).items()))


def as_by_turn(tasks: Sequence[Task], trajectories: Sequence[Trajectory], *, protocol: str, device: str) -> list[float]:
    """AS over all tasks of the best pass seen up to turn 1, 2, ... (PassNet, Figure 3), by the feedback's verdicts."""
    shown = {task.task_id: _shown(trajectory) for task, trajectory in zip(tasks, trajectories, strict=True)}
    num_turns = max((trajectory.num_turns for trajectory in trajectories), default=0)
    num_graphs = {task.task_id: len(task.graphs) for task in tasks}
    return curve_by_turn(shown, num_graphs, _nothing(tasks[0], protocol, device), num_turns=num_turns)


def _shown(trajectory: Trajectory) -> list[ShownEvaluation]:
    return [ShownEvaluation.of(record.turn, record.verdict) for record in trajectory.evaluations]


def _nothing(task: Task, protocol: str, device: str) -> float:
    """AS of nothing submitted; the same for every task."""
    graphs = unsubmitted_verdict(task, protocol=protocol, device=device).graphs
    score = score_verdict(graphs, *protocol_scoring(protocol)).as_score
    assert score is not None
    return score
