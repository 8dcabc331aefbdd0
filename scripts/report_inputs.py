"""What `passwright report` is given -> rows, and the collections behind them.

An argument is a file of verdicts, the folder of a student's evaluation (its row, its baselines), that of a run's
checkpoints (a row a step), or a collection's folder (its first attempts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval_harness.errors import UserError
from eval_harness.report_facts import ShownEvaluation
from eval_harness.report_row import ReportRow, load_row, protocol_scoring
from eval_harness.scores import score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from trajectories.record import Trajectory
from trajectories.store import TRAJECTORIES_DIR, is_finished, load_trajectories

ROW_FILE, COLLECTION_DIR = "row.json", "collection"
BASELINE_FILES = ("eager.json", "inductor.json")


@dataclass
class ReportInputs:
    """Rows in the order given, baselines last."""

    rows: list[ReportRow] = field(default_factory=list)
    collections: dict[str, Path] = field(default_factory=dict)
    """Row -> its attempts."""


def read_inputs(arguments: Sequence[str], *, with_baselines: bool = True) -> ReportInputs:
    """Read each [NAME=]RUN. with_baselines: of evaluations' folders, those that no argument names; each once.

    Raises UserError naming the argument.
    """
    found = ReportInputs()
    folders, files = [], set()
    for argument in arguments:
        name, path = split_name(argument)
        if not path.is_dir():
            files.add(path.resolve())
            found.rows.append(load_row(path, name))
            continue
        folders.append(path)
        for own, row_name in _row_folders(path, name):
            row, collection = _row_of_folder(own, row_name)
            found.rows.append(row)
            if collection is not None:
                found.collections[row.name] = collection
    baselines: dict[str, ReportRow] = {}
    for path in (folder / file for folder in folders for file in BASELINE_FILES):
        if with_baselines and path.exists() and path.resolve() not in files:
            row = load_row(path)
            baselines.setdefault(row.name, row)
    given = {row.name for row in found.rows}
    found.rows += [row for name, row in baselines.items() if name not in given]
    return found


def split_name(argument: str) -> tuple[str | None, Path]:
    """NAME=RUN, or RUN alone. A path that itself holds "=" is a path."""
    name, equals, path = argument.partition("=")
    return (None, Path(argument)) if not equals or Path(argument).exists() else (name, Path(path))


def collection_row(folder: Path, name: str) -> ReportRow:
    """The fresh verdicts of each task's first attempt: no choice among several.

    Raises UserError for a collection without attempts, or with one that has not ended.
    """
    attempts = [each for each in load_trajectories(folder) if each.attempt_index == 0]
    if not attempts:
        raise UserError(f"{folder}: no attempt in it yet; let `passwright collect` finish")
    running = [each.trajectory_id for each in attempts if not is_finished(each)]
    if running:
        raise UserError(f"{folder}: {running[0]} has not ended; let `passwright collect` finish")
    protocol = next((each.final_verdict.protocol for each in attempts if each.final_verdict), "strict")
    usage = [each.usage for each in attempts]
    return ReportRow(
        name=name,
        verdicts={each.task_id: each.final_verdict or _nothing(each, protocol) for each in attempts},
        attempts=len(attempts),
        totals={
            "input_tokens": sum(each.input_tokens for each in usage),
            "output_tokens": sum(each.output_tokens for each in usage),
            "cost_usd": round(sum(each.cost_usd for each in usage), 6),
            "turns": sum(each.num_turns for each in attempts),
            "wall_s": round(sum(each.duration_s for each in attempts), 1),
        },
        feedback_scores=_best_shown(attempts, "as_score"),
        feedback_covered=_best_shown(attempts, "as_covered"),
        shown={each.task_id: [[ShownEvaluation.of(e.turn, e.verdict) for e in each.evaluations]] for each in attempts},
        note="first attempts of a collection",
    )


def _row_folders(folder: Path, name: str | None) -> list[tuple[Path, str | None]]:
    """(folder, name) of each row: several where the folder is of checkpoints, in the order of their steps."""
    found = [(path.parent.name.removeprefix("step-"), path.parent) for path in folder.glob(f"step-*/{ROW_FILE}")]
    steps = {int(step): path for step, path in found if step.isdecimal()}
    if not steps or (folder / ROW_FILE).exists():
        return [(folder, name)]
    return [(path, f"{name}-{step}" if name else None) for step, path in sorted(steps.items())]


def _row_of_folder(folder: Path, name: str | None) -> tuple[ReportRow, Path | None]:
    if (folder / ROW_FILE).exists():
        collection = folder / COLLECTION_DIR
        return load_row(folder / ROW_FILE, name), collection if (collection / TRAJECTORIES_DIR).is_dir() else None
    if (folder / TRAJECTORIES_DIR).is_dir():
        return collection_row(folder, name or folder.resolve().name), folder
    raise UserError(
        f"{folder}: neither {ROW_FILE} nor {TRAJECTORIES_DIR}/ in it; give a folder of evaluate-student or collect"
    )


def _best_shown(attempts: Sequence[Trajectory], score: str) -> dict[str, float]:
    found = {}
    for each in attempts:
        if each.best_evaluation is not None:
            shown = getattr(each.evaluations[each.best_evaluation].verdict, score)
            if shown is not None:
                found[each.task_id] = shown
    return found


def _nothing(attempt: Trajectory, protocol: str) -> Verdict:
    """Of an attempt without a pass: nothing matched, so that it counts against the row."""
    graphs = [
        GraphVerdict(graph=graph, graph_hash=digest, outcome=Outcome.NO_MATCH, message="nothing was submitted")
        for graph, digest in attempt.graph_hashes.items()
    ]
    scores = score_verdict(graphs, *protocol_scoring(protocol))
    return Verdict(
        candidate_hash="",
        task_id=attempt.task_id,
        task_hash=attempt.task_hash,
        protocol=protocol,
        device=attempt.device,
        complete=True,
        as_score=scores.as_score,
        as_covered=scores.as_covered,
        es=scores.es,
        graphs=graphs,
    )
