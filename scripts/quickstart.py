"""`make quickstart`: the whole loop on a few tasks, on two CPU cores.

TLDR: tasks -> collect (the built-in expert teaches) -> dataset -> SFT of a tiny student -> the student before and
after, on its training tasks -> eager and TorchInductor, by the same judge -> report.json and report.html

This composer is the only file that knows all the stages; they do not know one another. Each stage keeps its own folder
below runs/quickstart, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from data.passbench import BUNDLED_DIR, load_tasks
from eval_harness.errors import HarnessError, UserError
from eval_harness.executor import LocalExecutor
from eval_harness.presets import load_protocol
from eval_harness.report import build_report, write_report
from eval_harness.report_row import ReportRow, TrajectoryCounts
from scripts.arguments import add_config, add_resume, check_device, say
from scripts.config_loading import load_config, refuse_other_config, write_run_record
from scripts.exit_status import run_with_exit_status
from scripts.quickstart_config import QuickstartConfig
from scripts.quickstart_rows import baseline_row, teacher_row
from scripts.quickstart_summary import render_closing_summary
from scripts.verbs.train import launch_command, run_launched
from training.evaluate import run_student_evaluation
from training.evaluate_config import COLLECTION_DIR
from training.sft import METRICS_FILE, SftRunConfig, SftSummary
from training.sft_dataset import DatasetSummary, build_sft_dataset
from trajectories.collect import run_collect
from trajectories.pages.report_details import ReportSources
from trajectories.pages.report_page import write_report_page

BEFORE, AFTER, TEACHER = "student-before-sft", "student-after-sft", "teacher-expert"


QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore::FutureWarning",
}
"""Libraries' own bars and notes on steps of a second, which would bury the bars of long steps. Changes no result."""


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return run_with_exit_status(lambda: _run(argv), name="quickstart")


def _run(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="quickstart", description="The whole loop on a few tasks.")
    add_config(parser)
    add_resume(parser)
    args = parser.parse_args(argv)
    run_quickstart(load_config(QuickstartConfig, args.config, args.overrides), resume=args.resume)
    return 0


def run_quickstart(config: QuickstartConfig, *, resume: bool = True) -> dict[str, Any]:
    """Every stage in turn; prints the closing summary and returns the report."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    clock = StageClock()
    device = check_device(config.device)
    if resume:
        refuse_other_config(config.out, config)
    with clock.stage("tasks", "which graphs are asked about"):
        tasks = [task for reference in config.tasks for task in load_tasks(reference)][: config.max_tasks]
        write_run_record(config.out, config, _task_files(config.tasks))
        say(f"{len(tasks)} tasks, {sum(len(task.graphs) for task in tasks)} graphs, from {', '.join(config.tasks)}")
    with LocalExecutor(device=device, num_judges=1) as judge:
        with clock.stage("collect", "the built-in expert works on them"):
            collected = run_collect(config.collect, tasks, judge, resume=resume)
        with clock.stage("dataset", "what of it is worth learning"):
            dataset = build_sft_dataset(config.dataset, overwrite=True)
        with clock.stage("SFT", "a tiny student learns it by heart"):
            trained = run_sft_launched(config.sft, config.out, config.accelerate_config, resume=resume)
        rows = [teacher_row(config.collect.root, tasks, name=TEACHER, protocol=_final(config), device=device)]
        for name, folder in ((BEFORE, trained.untrained_dir), (AFTER, trained.student_dir)):
            with clock.stage(name, "the same tasks, the same environment, the same judge"):
                if folder is None:  # SFT of a named model keeps no copy of it
                    folder = str(config.sft.student.name_or_path)
                evaluation = run_student_evaluation(
                    config.evaluation_of(Path(folder), name=name), tasks, judge, resume=resume
                )
                rows.append(evaluation.row)
        protocol = load_protocol(_final(config), **config.evaluation.final_protocol_overrides)
        for baseline in config.baselines:
            with clock.stage(baseline, "measured by the same judge"):
                rows.append(baseline_row(baseline, tasks, judge, protocol, config.out / "baselines"))
    with clock.stage("report", "from the verdicts alone"):
        report = make_report(config, rows, dataset, trained, clock.seconds)
    print(render_closing_summary(report, collected, dataset, trained, out=config.out, names=(TEACHER, BEFORE, AFTER)))
    return report


def run_sft_launched(config: SftRunConfig, out: Path, accelerate_config: Path, *, resume: bool) -> SftSummary:
    """SFT as a user starts it, in processes of its own; its summary read back. Raises HarnessError if it failed."""
    path = out / "sft.yaml"
    OmegaConf.save(OmegaConf.create(config.model_dump(mode="json")), path)
    arguments = ["--config", str(path), "--resume" if resume else "--no-resume"]
    status = run_launched(launch_command("scripts.train_sft", arguments, accelerate_config=accelerate_config))
    if status == 130:
        raise KeyboardInterrupt
    if status == 2:
        raise UserError("SFT refused its configuration, see above")
    if status:
        raise HarnessError(f"SFT ended with exit status {status}, see above; the same command goes on with it")
    return SftSummary.model_validate_json((config.out_dir / "summary.json").read_text())


def make_report(
    config: QuickstartConfig,
    rows: Sequence[ReportRow],
    dataset: DatasetSummary,
    trained: SftSummary,
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """report.json and report.html in config.out, from verdicts, counts and the logged losses."""
    losses = [OmegaConf.to_container(OmegaConf.create(line)) for line in _lines(config.sft.out_dir / METRICS_FILE)]
    report = build_report(
        rows,
        title="Passwright quickstart",
        trajectories=TrajectoryCounts(kept=dataset.num_rows, dropped=dataset.refusals),
        loss_curve=losses,  # type: ignore[arg-type]
        run={"config": config.model_dump(mode="json"), "seconds": dict(seconds), "sft": trained.model_dump()},
    )
    write_report(report, config.out)
    students = {name: config.out / name / COLLECTION_DIR for name in (BEFORE, AFTER)}
    write_report_page(report, config.out, ReportSources(rows, {TEACHER: config.collect.root} | students))
    return report


class StageClock:
    """Announces each stage and keeps how long it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        say(f"\n[{len(self.seconds) + 1}] {name}: {what}")
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 1)


def _task_files(references: Sequence[str]) -> dict[str, Path]:
    """The bundled files among the references, whose hashes go into the run record."""
    files = {reference: BUNDLED_DIR / f"{reference.split(':')[0].split('/')[0]}.parquet" for reference in references}
    return {reference: path for reference, path in files.items() if path.is_file()}


def _final(config: QuickstartConfig) -> str:
    return config.evaluation.final_protocol


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
