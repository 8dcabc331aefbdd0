"""run_student_evaluation: a checkpoint attempts tasks in the teacher's environment, before the teacher's judge.

student -> served (served_student.py) -> trajectories/collect.py (the same environment, prompts, limits and store)
    -> each attempt's best pass by feedback, once more, fresh -> baselines by the same judge
    -> verdicts.jsonl, row.json, report.json, report.md, report.html, summary.json

An attempt that never submitted a pass counts as NO_MATCH on every graph. An attempt that we or the machine failed
counts as nothing: the evaluation is then not finished, and the same call goes on with it, as after a kill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.task import Task
from eval_harness.errors import UserError
from eval_harness.executor import Evaluator
from eval_harness.report import build_report, write_report
from eval_harness.report_markdown import write_markdown
from eval_harness.report_row import ReportRow
from eval_harness.report_row_data import row_scoring
from training.evaluate_attempts import SERVING_FILE, make_attempts, tasks_of
from training.evaluate_baselines import measure_baselines, open_fresh
from training.evaluate_config import COLLECTION_DIR, NOT_IDENTITY, StudentEvaluationConfig
from training.evaluate_rows import as_by_turn, attempt_verdicts, student_row
from training.evaluate_summary import EvaluationSummary, summarize_evaluation
from training.run_folder import RunFolder
from training.student_source import StudentSource, find_source
from trajectories.pages.report_details import ReportSources
from trajectories.pages.report_page import write_report_page
from trajectories.plan import Shard
from trajectories.record import Trajectory
from trajectories.store import write_atomically
from trajectories.store_files import read_json_lines

__all__ = ["EvaluationSummary", "StudentEvaluation", "StudentEvaluationConfig", "as_by_turn", "run_student_evaluation"]

logger = logging.getLogger(__name__)

VERDICTS_FILE = "verdicts.jsonl"
ROW_FILE = "row.json"


@dataclass(frozen=True)
class StudentEvaluation:
    """What run_student_evaluation returns."""

    trajectories: list[Trajectory]
    """By attempt index, then in the order of the tasks."""
    row: ReportRow
    """First attempts, for a report."""
    summary: EvaluationSummary
    baselines: list[ReportRow] = field(default_factory=list)
    compiled: list[ReportRow] = field(default_factory=list)
    """Rows through torch.compile."""
    report: dict[str, Any] = field(default_factory=dict)
    """report.json."""


def run_student_evaluation(
    config: StudentEvaluationConfig,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    *,
    resume: bool = True,
    progress: bool = True,
    shard: Shard | None = None,
    say: Callable[[str], None] = logger.info,
    run: str = "",
    step: int | None = None,
    judge_device: str | None = None,
) -> StudentEvaluation:
    """Evaluate, or finish an evaluation that was stopped. The evaluator stays the caller's to close.

    tasks: what config.tasks names, all of them also for a shard, which attempts its share. say: told what is under way.
    run, step: the training run and optimizer step that the checkpoint is of. judge_device: where local judges run, if
    not on all that config.device means: a server leaves those GPUs alone.
    Raises UserError (no checkpoint, a server that does not start, another configuration in the folder) and HarnessError
    (attempts that failed by our fault; the same call goes on with them).
    """
    tasks = list(tasks)[: config.max_tasks]
    source = find_source(config.student)
    protocol = config.resolved_final_protocol()
    if protocol.disabled_layers:
        raise UserError("final_protocol_overrides.disabled_layers: such verdicts are nobody's result; leave it out")
    out_dir = config.out_dir_of(shard)
    inputs = {"student": source.folder} if source.folder is not None else {}
    folder = RunFolder(out_dir, config, inputs=inputs, ignored_fields=NOT_IDENTITY)
    folder.open(resume=resume)
    mine = tasks_of(config, tasks, shard)
    fresh = open_fresh(config, out_dir, evaluator, protocol)
    attempts = make_attempts(
        config, source, tasks, evaluator, fresh,
        shard=shard, progress=progress, say=say, judge_device=judge_device,
    )  # fmt: skip
    verdicts = attempt_verdicts(mine, attempts, protocol=config.final_protocol, device=config.device)
    settings = protocol.model_dump(mode="json")
    sessions = list(read_json_lines(out_dir / SERVING_FILE))
    row = student_row(
        config.name, mine, attempts, verdicts, protocol_settings=settings, shown_protocol=config.protocol,
        device=config.device, totals=_gpu_totals(config, attempts, sessions), run=run, step=step,
        settings=_row_settings(config, source, sessions),
    )  # fmt: skip
    scoring, p = row_scoring(row)
    summary = summarize_evaluation(
        row, attempts, verdicts, student=str(config.student), scoring=scoring, p=p,
        shard=str(shard) if shard else None, serving=sessions[-1] if sessions else {},
    )  # fmt: skip
    baselines, compiled = measure_baselines(config, mine, evaluator, out_dir, first_attempts=attempts[0], say=say)
    final = [by_task[task.task_id].model_dump_json() for by_task in verdicts for task in mine]
    write_atomically(out_dir / VERDICTS_FILE, "\n".join(final) + "\n")
    write_atomically(out_dir / ROW_FILE, row.model_dump_json(indent=1) + "\n")
    for name, baseline in zip(config.baselines, baselines, strict=True):
        write_atomically(out_dir / f"{name}.json", baseline.model_dump_json(indent=1) + "\n")
    title = f"{config.name}: {', '.join(config.tasks)}" + (f", share {shard}" if shard else "")
    report = write_reports(config, [row, *baselines], compiled, out_dir, title=title, sessions=sessions)
    folder.write_summary(summary.model_dump(mode="json"))
    return StudentEvaluation([each for of in attempts for each in of], row, summary, baselines, compiled, report)


def write_reports(
    config: StudentEvaluationConfig,
    rows: Sequence[ReportRow],
    compiled: Sequence[ReportRow],
    out_dir: Path,
    *,
    title: str,
    sessions: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """report.json, report.md and report.html of an evaluation's rows; returns the report."""
    run = {"config": config.model_dump(mode="json"), "serving": list(sessions)}
    # rows of one evaluation that cannot be compared (shards on unlike machines) are told in it, not lost
    report = build_report(rows, title=title, run=run, compiled=compiled, allow_mixed=True)
    write_report(report, out_dir)
    write_markdown(report, out_dir)
    collections = {row.name: _collection_of(row, out_dir) for row in rows if row.attempts is not None}
    sources = ReportSources(rows, {name: folder for name, folder in collections.items() if folder is not None})
    write_report_page(report, out_dir, sources)
    return report


def _collection_of(row: ReportRow, out_dir: Path) -> Path | None:
    """Where a row's attempts lie: its own checkpoint's folder, or the evaluation's."""
    candidates = (out_dir / f"step-{row.step}" / COLLECTION_DIR, out_dir / COLLECTION_DIR)
    return next((folder for folder in candidates if folder.is_dir()), None)


def _row_settings(
    config: StudentEvaluationConfig, source: StudentSource, sessions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "student": source.name,
        "sampling": config.sampling.model_dump(),
        "limits": config.limits.model_dump(),
        "num_attempts": config.num_attempts,
        "shown_protocol": config.protocol,
        "seed": config.seed,
        "serving": dict(sessions[-1]) if sessions else {},
    }


def _gpu_totals(
    config: StudentEvaluationConfig, attempts: Sequence[Sequence[Trajectory]], sessions: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    hours = sum(float(session.get("up_s", 0)) * int(session.get("num_gpus", 0)) for session in sessions) / 3600
    if not hours:
        return {}
    totals = {"gpu_hours": round(hours, 4)}
    if config.cost.usd_per_gpu_hour is not None:
        answers = sum(trajectory.usage.cost_usd for of_index in attempts for trajectory in of_index)
        totals["cost_usd"] = round(answers + hours * config.cost.usd_per_gpu_hour, 4)
    return totals
