"""The quickstart's last words: what was shown, in numbers taken from the report and the stages' summaries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.report_text import render_report
from training.sft import SftSummary
from training.sft_dataset import DatasetSummary
from trajectories.collect_summary import CollectSummary


def render_closing_summary(
    report: Mapping[str, Any],
    collected: CollectSummary,
    dataset: DatasetSummary,
    trained: SftSummary,
    *,
    out: Path,
    names: tuple[str, str, str],
) -> str:
    """names: of the rows of the teacher, the student before SFT and the student after."""
    scores = {row["name"]: row["summary"]["as_score"] for row in report["rows"]}
    teacher, before, after = (scores[name] for name in names)
    seconds = report["run"]["seconds"]
    stages = ", ".join(f"{name} {value:.0f}" for name, value in seconds.items())
    lines = [
        "",
        "What this run showed",
        f"  teacher    the built-in expert: AS {_score(teacher)} over first attempts; "
        f"{collected.num_tasks_solved} of {collected.num_tasks} tasks solved in {collected.num_finished} attempts",
        f"  dataset    {dataset.num_rows} of {dataset.num_trajectories} trajectories kept"
        + "".join(f"; {count} dropped: {reason}" for reason, count in dataset.refusals.items()),
        f"  SFT        {trained.num_parameters / 1e6:.1f} M parameters, {trained.num_steps} steps, "
        f"loss {_score(trained.first_loss)} -> {_score(trained.last_loss)}",
        f"  student    AS on its training tasks {_score(before)} before SFT, {_score(after)} after "
        "(a tiny model that learns by heart: it shows the loop, not a result)",
        "",
        render_report(report),
        "",
        f"seconds    {stages}; {sum(seconds.values()):.0f} in all",
        f"report     {out / 'report.html'} (numbers: {out / 'report.json'})",
    ]
    return "\n".join(lines)


def _score(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
