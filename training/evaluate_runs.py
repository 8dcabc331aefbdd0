"""Several evaluations as one: the checkpoints of a training run, and the folders of a sharded evaluation."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data.task import Task
from eval_harness.errors import UserError
from eval_harness.executor import Evaluator
from eval_harness.report_row import ReportRow
from training.evaluate import StudentEvaluation, run_student_evaluation, write_reports
from training.evaluate_attempts import SERVING_FILE
from training.evaluate_baselines import FRESH_DIR, measure_baselines
from training.evaluate_config import COLLECTION_DIR, StudentEvaluationConfig
from training.run_folder import CONFIG_FILE
from training.student_source import find_checkpoints
from trajectories.collect_merge import merge_collections
from trajectories.store import write_atomically

logger = logging.getLogger(__name__)


def evaluate_checkpoints(
    config: StudentEvaluationConfig,
    run: Path,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    *,
    steps: list[int] | None = None,
    resume: bool = True,
    progress: bool = True,
    say: Callable[[str], None] = logger.info,
    judge_device: str | None = None,
) -> tuple[list[StudentEvaluation], dict[str, Any]]:
    """(an evaluation a checkpoint, the report of all with their curve), for a run of SFT or GRPO.

    config.student is not used; each checkpoint has a folder of its own below config.out_dir, so what was finished is
    not made again. Baselines are measured once. Raises UserError for a run without checkpoints.
    """
    evaluations = []
    for step, checkpoint in find_checkpoints(run, steps):
        say(f"step {step}: {checkpoint}")
        own = config.model_copy(
            update={
                "name": f"{config.name}-{step}",
                "student": checkpoint,
                "out": config.out_dir / f"step-{step}",
                "baselines": [],
                "through_compile": False,
            }
        )
        evaluations.append(
            run_student_evaluation(
                own,
                tasks,
                evaluator,
                resume=resume,
                progress=progress,
                say=say,
                run=str(run),
                step=step,
                judge_device=judge_device,
            )
        )
    tasks = list(tasks)[: config.max_tasks]
    baselines, compiled = measure_baselines(config, tasks, evaluator, config.out_dir, say=say)
    rows: list[ReportRow] = [*(evaluation.row for evaluation in evaluations), *baselines]
    report = write_reports(config, rows, compiled, config.out_dir, title=f"{config.name}: checkpoints of {run}")
    return evaluations, report


def merge_evaluations(folders: Sequence[Path], out: Path) -> StudentEvaluationConfig:
    """Put the folders of a sharded evaluation together into out; returns its configuration.

    run_student_evaluation with it then finds every attempt made and writes the report; what is missing it makes. The
    shards stay as they are. Raises UserError: folders of different evaluations, or out is taken.
    """
    records = [_record(folder) for folder in folders]
    for folder, record in zip(folders, records, strict=True):
        if record.get("config_hash") != records[0].get("config_hash"):
            raise UserError(f"{folder}: is no share of the same evaluation as {folders[0]}; leave one of them out")
    if out.exists():
        raise UserError(f"{out}: is there already; give --out a folder that is not")
    config = StudentEvaluationConfig.model_validate(records[0]["config"]).model_copy(update={"out": out})
    out.mkdir(parents=True)
    merge_collections([folder / COLLECTION_DIR for folder in folders], out / COLLECTION_DIR)
    for folder in folders:
        if (folder / FRESH_DIR).is_dir():
            shutil.copytree(folder / FRESH_DIR, out / FRESH_DIR, dirs_exist_ok=True)
    lines = [(folder / SERVING_FILE).read_text() for folder in folders if (folder / SERVING_FILE).exists()]
    if lines:
        write_atomically(out / SERVING_FILE, "".join(lines))
    # last: what has no configuration is no evaluation, so a merge that was broken off is seen
    write_atomically(out / CONFIG_FILE, json.dumps(records[0], indent=1) + "\n")
    return config


def _record(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and isinstance(record.get("config"), dict):
            return record
    except (OSError, ValueError):
        pass
    raise UserError(f"{path}: is no configuration of an evaluation; give the folders that evaluate-student wrote")
