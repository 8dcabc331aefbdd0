"""AttemptIndex: what a collection's attempts came to, a line each, so that a resume need not read gigabytes of records.

It is found again from the records: a line counts while its record has the size it was written with, and a record
without a line is read. So it needs no care after a kill, and records may be removed or put back by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from eval_harness.verdict import Verdict
from trajectories.ledger import teacher_of
from trajectories.record import Trajectory, Usage
from trajectories.selection import SelectionConfig, refusal
from trajectories.store import TrajectoryStore, is_finished, load_trajectory
from trajectories.store_files import disk_errors, read_json_lines, write_atomically

INDEX_FILE = "index.jsonl"
ROW_VERSION = 1
"""Another one reads the records again."""


class AttemptRow(BaseModel):
    """One attempt in figures."""

    model_config = ConfigDict(extra="forbid")

    version: int = ROW_VERSION
    trajectory_id: str
    task_id: str
    attempt_index: int
    teacher: str
    stop_reason: str | None
    """None: it is running, or was interrupted."""
    is_finished: bool
    refusal: str | None
    """Why the default selection does not keep it; None: it does. Duplicates are not looked for."""
    num_turns: int
    num_evaluations: int
    evaluation_s: float
    """Seconds that the judge spent on the verdicts the policy saw; repeats from the cache cost none."""
    final_evaluation_s: float
    final_as: float | None
    final_as_covered: float | None
    shown_as_covered: float | None
    """The best that the policy was shown."""
    is_solved: bool
    """Every graph of the final verdict is CORRECT."""
    shrinkage: float | None
    shrinkage_covered: float | None
    usage: Usage
    duration_s: float
    record_bytes: int = 0

    @property
    def kept(self) -> bool:
        """By the default selection."""
        return self.refusal is None

    @property
    def score(self) -> float | None:
        """Covered AS of the final verdict; of the best one shown where there is no final one."""
        return self.final_as_covered if self.final_as_covered is not None else self.shown_as_covered


def attempt_row(trajectory: Trajectory, *, record_bytes: int = 0) -> AttemptRow:
    """The figures of one record."""
    final = trajectory.final_verdict
    best = trajectory.best_evaluation
    shown = None if best is None else trajectory.evaluations[best].verdict
    return AttemptRow(
        trajectory_id=trajectory.trajectory_id,
        task_id=trajectory.task_id,
        attempt_index=trajectory.attempt_index,
        teacher=teacher_of(trajectory.policy),
        stop_reason=str(trajectory.stop_reason) if trajectory.stop_reason else None,
        is_finished=is_finished(trajectory),
        refusal=refusal(trajectory, SelectionConfig()),
        num_turns=trajectory.num_turns,
        num_evaluations=len(trajectory.evaluations),
        evaluation_s=sum(_judge_s(record.verdict) for record in trajectory.evaluations),
        final_evaluation_s=_judge_s(final),
        final_as=final.as_score if final else None,
        final_as_covered=final.as_covered if final else None,
        shown_as_covered=shown.as_covered if shown else None,
        is_solved=final is not None and final.as_score is not None and final.num_correct == len(final.graphs),
        shrinkage=trajectory.shrinkage,
        shrinkage_covered=trajectory.shrinkage_covered,
        usage=trajectory.usage,
        duration_s=trajectory.duration_s,
        record_bytes=record_bytes,
    )


class AttemptIndex:
    """The rows of one collection. Not thread-safe."""

    def __init__(self, store: TrajectoryStore) -> None:
        """Reads the index, and those records that it does not know."""
        self._store = store
        self.path = store.root / INDEX_FILE
        self.rows: dict[str, AttemptRow] = {}
        """By trajectory_id; running and interrupted attempts too."""
        self._load()

    def add(self, trajectory: Trajectory) -> AttemptRow:
        """The row of a record that is stored; one that has ended is remembered. Raises UserError if the disk is full.

        Not synced: what a power failure takes is read from the record again.
        """
        path = self._store.path(trajectory.trajectory_id)
        row = attempt_row(trajectory, record_bytes=path.stat().st_size if path.exists() else 0)
        self.rows[row.trajectory_id] = row
        if row.stop_reason is not None:
            with disk_errors(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(row.model_dump_json() + "\n")
        return row

    def save(self) -> None:
        """Write it anew, a line an attempt that has ended."""
        lines = [row.model_dump_json() + "\n" for row in self.rows.values() if row.stop_reason is not None]
        write_atomically(self.path, "".join(lines))

    def _load(self) -> None:
        indexed = _read_rows(self._store)
        for path in self._store.record_paths():
            size = path.stat().st_size
            row = indexed.get(path.name)
            if row is None or row.record_bytes != size:
                row = attempt_row(load_trajectory(path), record_bytes=size)
            self.rows[row.trajectory_id] = row


def load_rows(store: TrajectoryStore) -> list[AttemptRow]:
    """The rows of every attempt of a folder, by name of the record. Writes nothing."""
    return list(AttemptIndex(store).rows.values())


def _read_rows(store: TrajectoryStore) -> dict[str, AttemptRow]:
    """File name of the record -> the last row that was written of it."""
    rows: dict[str, AttemptRow] = {}
    for entry in read_json_lines(store.root / INDEX_FILE):
        if entry.get("version") != ROW_VERSION:
            continue
        try:
            row = AttemptRow.model_validate(entry)
        except ValidationError:
            continue
        rows[store.path(row.trajectory_id).name] = row
    return rows


def total_usage(rows: Sequence[AttemptRow]) -> Usage:
    """Of the stored answers."""
    usage = Usage()
    for row in rows:
        for name in Usage.model_fields:
            setattr(usage, name, round(getattr(usage, name) + getattr(row.usage, name), 9))
    return usage


def _judge_s(verdict: Verdict | None) -> float:
    return 0.0 if verdict is None or verdict.from_cache else verdict.timings.get("total", 0.0)
