"""The rows of the quickstart's report that no student makes: the teacher's, and the measured baselines'."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from data.task import Task
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol
from eval_harness.report_row import ReportRow, unsubmitted_verdict
from eval_harness.verdict import Verdict
from training.evaluate import as_by_turn
from trajectories.record import Trajectory
from trajectories.store import load_trajectories, write_atomically

BASELINE_NAMES = {"eager": "Eager", "inductor": "TorchInductor"}


def teacher_row(collection: Path, tasks: Sequence[Task], *, name: str, protocol: str, device: str) -> ReportRow:
    """The final verdicts of each task's first attempt: no choice among several."""
    first = {item.task_id: item for item in load_trajectories(collection) if item.attempt_index == 0}
    verdicts = {}
    for task in tasks:
        final = first[task.task_id].final_verdict if task.task_id in first else None
        verdicts[task.task_id] = final or unsubmitted_verdict(task, protocol=protocol, device=device)
    attempts: list[Trajectory] = [first[task.task_id] for task in tasks if task.task_id in first]
    feedback = {
        item.task_id: score
        for item in attempts
        if item.best_evaluation is not None
        and (score := item.evaluations[item.best_evaluation].verdict.as_score) is not None
    }
    is_whole = len(attempts) == len(tasks)
    turns = as_by_turn(tasks, attempts, protocol=attempts[0].protocol, device=device) if is_whole else []
    return ReportRow(
        name=name,
        verdicts=verdicts,
        attempts=len(attempts),
        totals={"wall_s": round(sum(item.duration_s for item in attempts), 1)},
        feedback_scores=feedback,
        as_by_turn=turns,
        note="first attempts",
    )


def baseline_row(
    baseline: str, tasks: Sequence[Task], evaluator: Evaluator, protocol: EvaluationProtocol, folder: Path
) -> ReportRow:
    """A baseline measured on every task, each verdict stored as it comes: a second run goes on."""
    verdicts = {}
    for task in tqdm(tasks, desc=f"{baseline:<8}", unit="task"):
        path = folder / baseline / f"{task.content_hash[:16]}.{protocol.name}.json"
        verdicts[task.task_id] = _stored(path, task) or evaluator.submit(baseline, task, protocol=protocol).result()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, verdicts[task.task_id].model_dump_json(indent=1) + "\n")
    return ReportRow(name=BASELINE_NAMES.get(baseline, baseline), verdicts=verdicts, note="measured by the same judge")


def _stored(path: Path, task: Task) -> Verdict | None:
    try:
        verdict = Verdict.model_validate(json.loads(path.read_text()))
    except (OSError, ValueError):
        return None
    return verdict if verdict.complete and verdict.task_id == task.task_id else None
