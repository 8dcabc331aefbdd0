"""A collection for a reader, in a few lines: render_summary of a summary, render_run of a folder."""

from __future__ import annotations

from pathlib import Path

from trajectories.collect_index import load_rows
from trajectories.collect_summary import CollectSummary, summarise
from trajectories.ledger import Ledger
from trajectories.progress import Clock, short_count, short_time
from trajectories.record import INFRASTRUCTURE_STOPS
from trajectories.store import LEDGER_FILE, TrajectoryStore

_NUM_REFUSALS = 5


def render_run(folder: Path | str) -> str:
    """What a collection's folder holds now, whether a run is writing to it or not. Raises UserError: it is none."""
    return render_summary(summarise_run(folder))


def summarise_run(folder: Path | str) -> CollectSummary:
    """The same as figures. Attempts that a stop rule spares are not told from those that are still open."""
    store = TrajectoryStore(folder)
    manifest = store.manifest
    config = manifest.get("config", {})
    num_tasks = len(config.get("task_hashes", {}))
    if shard := manifest.get("shard"):
        index, count = map(int, shard.split("/"))
        num_tasks = len(range(index - 1, num_tasks, count))
    return summarise(
        store.root.name,
        load_rows(store),
        Ledger(store.root / LEDGER_FILE),
        num_tasks=num_tasks,
        num_planned=num_tasks * int(config.get("num_attempts", 1)),
        total_duration_s=Clock(store.root).earlier_s,
    )


def render_summary(summary: CollectSummary) -> str:
    """A collection in a few lines."""
    stops = ", ".join(f"{count} {reason}" for reason, count in summary.stop_reasons.items())
    spared = f", {summary.num_skipped} spared" if summary.num_skipped else ""
    lines = [
        f"{summary.num_finished} of {summary.num_planned} attempts finished{spared} ({stops})",
        f"{summary.num_tasks_solved} of {summary.num_tasks} tasks solved, {summary.num_evaluations} evaluations",
        f"{summary.num_kept} kept by the default selection",
    ]
    if summary.tasks_given_up:
        given_up = ", ".join(f"{count} {reason}" for reason, count in summary.tasks_given_up.items())
        lines.append(f"tasks given up: {given_up}")
    for reason, count in list(summary.refusals.items())[:_NUM_REFUSALS]:
        lines.append(f"  {count} not: {reason}")
    if summary.median_final_as is not None:
        covered = "" if summary.median_final_as_covered is None else f", covered {summary.median_final_as_covered:.3f}"
        lines.append(f"median AS of the final verdicts {summary.median_final_as:.3f}{covered}")
    if summary.shrinkage is not None:
        covered = "" if summary.shrinkage_covered is None else f", covered {summary.shrinkage_covered:.3f}"
        lines.append(f"fresh over best feedback (shrinkage) {summary.shrinkage:.3f}{covered}")
    tokens = f"{summary.usage.input_tokens} tokens read, {summary.usage.output_tokens} written"
    lines.append(f"{tokens}, {_money(summary.spent_usd, summary.usd_per_kept)}, {short_time(summary.total_duration_s)}")
    for name, teacher in summary.teachers.items() if len(summary.teachers) > 1 else ():
        lines.append(
            f"  {name}: {teacher.num_finished} finished, {teacher.num_kept} kept, {teacher.num_answers} answers, "
            f"{short_count(teacher.input_tokens)} tokens read, {short_count(teacher.output_tokens)} written, "
            f"{_money(teacher.spent_usd, teacher.usd_per_kept)}"
        )
    failed = sum(count for reason, count in summary.stop_reasons.items() if reason in INFRASTRUCTURE_STOPS)
    if failed:
        verb = "attempt was" if failed == 1 else "attempts were"
        lines.append(f"{failed} {verb} ended by a failure that is not the policy's; the same command goes on with them")
    return "\n".join(lines)


def _money(spent_usd: float, usd_per_kept: float | None) -> str:
    each = "" if not spent_usd or usd_per_kept is None else f" ({usd_per_kept:.3f} for each that is kept)"
    return f"{spent_usd:.2f} USD{each}"
