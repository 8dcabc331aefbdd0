"""Baselines of an evaluation by the same judge; rows through torch.compile, where figures are read like for like."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol
from eval_harness.report_row import ReportRow
from training.evaluate_config import StudentEvaluationConfig
from training.evaluate_rows import attempt_verdicts, baseline_row
from training.fresh_verdicts import FreshVerdicts
from trajectories.record import Trajectory

logger = logging.getLogger(__name__)

FRESH_DIR = "fresh"
"""Of an evaluation's folder: verdicts of baselines and further ones of best passes."""
COMPILED_SUFFIX = ", through torch.compile"


def open_fresh(
    config: StudentEvaluationConfig, out_dir: Path, evaluator: Evaluator, protocol: EvaluationProtocol
) -> FreshVerdicts:
    """The stored fresh verdicts of an evaluation, by a protocol."""
    return FreshVerdicts(out_dir / FRESH_DIR, evaluator, protocol, max_retries=config.final_retries)


def measure_baselines(
    config: StudentEvaluationConfig,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    out_dir: Path,
    *,
    first_attempts: Sequence[Trajectory] = (),
    say: Callable[[str], None] = logger.info,
) -> tuple[list[ReportRow], list[ReportRow]]:
    """(rows of the baselines, rows through torch.compile: the student's best passes and the baselines again).

    By the protocol of the final verdicts. Each verdict is stored; a second call goes on.
    """
    protocol = config.resolved_final_protocol()
    rows = _baseline_rows(config, tasks, evaluator, out_dir, protocol, say)
    if not config.through_compile or protocol.apply == "compile":
        return rows, []
    protocol = config.resolved_final_protocol(apply="compile")
    compiled = _baseline_rows(config, tasks, evaluator, out_dir, protocol, say, suffix=COMPILED_SUFFIX)
    if not first_attempts:
        return rows, compiled
    say(f"the best passes through torch.compile: {len(tasks)} tasks")
    fresh = open_fresh(config, out_dir, evaluator, protocol)
    found = [(task, attempt.best_files) for task, attempt in zip(tasks, first_attempts, strict=True)]
    verdicts = fresh.evaluate([(task.task_id, Candidate(files), task) for task, files in found if files])
    again = [each.model_copy(update={"final_verdict": verdicts.get(each.task_id)}) for each in first_attempts]
    own = ReportRow(
        name=config.name + COMPILED_SUFFIX,
        verdicts=attempt_verdicts(tasks, [again], protocol=protocol.name, device=config.device)[0],
        protocol_settings=protocol.model_dump(mode="json"),
    )
    return rows, [own, *compiled]


def _baseline_rows(
    config: StudentEvaluationConfig,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    out_dir: Path,
    protocol: EvaluationProtocol,
    say: Callable[[str], None],
    suffix: str = "",
) -> list[ReportRow]:
    rows = []
    fresh = open_fresh(config, out_dir, evaluator, protocol)
    for baseline in config.baselines:
        say(f"{baseline}{suffix}: {len(tasks)} tasks, by the same judge")
        verdicts = fresh.evaluate([(task.task_id, baseline, task) for task in tasks])
        row = baseline_row(baseline, verdicts, tasks, protocol_settings=protocol.model_dump(mode="json"))
        rows.append(row.model_copy(update={"name": row.name + suffix}))
    return rows
