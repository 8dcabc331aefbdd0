"""What `passwright bench expert` keeps of each task, and the file that it is appended to at once.

One JSON object a line: first the conditions of the measurement, then records, the last of one key counting. A line that
was cut off at the end (a killed run) is dropped; nothing else is ever taken away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from eval_harness.errors import UserError
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from eval_harness.wire import explain

RESULTS_FILE = "expert.jsonl"
FILE_VERSION = 1

Row = Literal["expert", "eager", "inductor"]
ROW_NAMES: dict[Row, str] = {"expert": "expert", "eager": "Eager", "inductor": "TorchInductor"}
"""As reports call them."""


class PlanRecord(BaseModel):
    """What the expert made of one task."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["whole", "part", "none", "error"]
    """whole: nothing is left outside; part: something is; none: no pass; error: the expert itself failed."""
    refused: list[str] = []
    """What stays outside and why, as the expert says it."""
    summary: list[str] = []
    """The fused regions."""
    candidate_hash: str = ""
    seconds: float
    """Writing the pass; no part of any evaluation."""


class TaskRecord(BaseModel):
    """One task: the expert's plan and, where it wrote a pass, the verdict."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["task"] = "task"
    task_id: str
    task_hash: str
    plan: PlanRecord
    verdict: Verdict | None = None
    error: str | None = None
    """Our failure: the task is in no share and no mean, and --resume tries it again."""
    wall_s: float = 0.0
    """From submission to the end, waiting for the device included."""

    @property
    def is_final(self) -> bool:
        """False where another try may say more: the harness failed, or the machine was unsteady."""
        return self.error is None and (self.verdict is None or self.verdict.complete)


class Member(BaseModel):
    """A graph of a comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_id: str
    graph: str
    """Its name in the task."""
    graph_hash: str


class ComparisonRecord(BaseModel):
    """One evaluation of graphs that are compared like for like."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["comparison"] = "comparison"
    row: Row
    guards: bool
    """Through torch.compile, whose guards are then in the time; False: the compiled form is called directly."""
    members: list[Member]
    """In the order of the verdict's graphs."""
    candidate_hash: str = ""
    """The expert's pass; empty for a baseline."""
    verdict: Verdict | None = None
    error: str | None = None
    wall_s: float = 0.0

    def verdict_of(self, graph_hash: str) -> GraphVerdict | None:
        """Of one member; None where the harness failed or the machine was unsteady: another try may tell."""
        for member, graph in zip(self.members, self.verdict.graphs if self.verdict else (), strict=False):
            if member.graph_hash == graph_hash and graph.outcome is not Outcome.UNSTABLE:
                return graph
        return None


@dataclass
class Progress:
    """What a run has come to."""

    reached: list[TaskRecord] = field(default_factory=list)
    """The tasks at the head of the order that have ended, one gap ends them: a random sample, however it ended."""
    num_beyond: int = 0
    """Tasks that ended behind the first that did not; kept in the file, in no figure."""
    compared: list[Member] = field(default_factory=list)
    """The graphs to be compared, of tasks that were reached."""
    comparisons: list[ComparisonRecord] = field(default_factory=list)
    """The evaluations that hold them."""
    was_cut_off: bool = False
    num_resumed: int = 0
    """Tasks whose verdict an earlier run left."""


Record = TaskRecord | ComparisonRecord
ComparisonKey = tuple[Row, bool, str, str]
"""Row, guards, graph hash, candidate hash."""
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


class ResultFile:
    """The records of one folder, in memory and on disk. Used by one process at a time."""

    def __init__(self, folder: Path, conditions: Mapping[str, Any], *, resume: bool) -> None:
        """Read what is there, or begin anew (an older file is kept as expert.previous.jsonl).

        Raises UserError where the file is unreadable or was measured under other conditions.
        """
        self.path = folder / RESULTS_FILE
        self.tasks: dict[str, TaskRecord] = {}
        self.comparisons: dict[ComparisonKey, ComparisonRecord] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and not resume:
                self.path.replace(folder / "expert.previous.jsonl")
            if self.path.exists():
                self._read(conditions)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{error.filename or folder}: {error.strerror}; give another --out") from None
        if not self._file.tell():
            self._write({"kind": "conditions", "version": FILE_VERSION, **conditions})

    def append(self, record: Record) -> None:
        """Keep a record; it is on disk when this returns."""
        self._keep(record)
        self._write(record.model_dump(mode="json"))

    def close(self) -> None:
        self._file.close()

    def _write(self, fields: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _keep(self, record: Record) -> None:
        if isinstance(record, TaskRecord):
            self.tasks[record.task_id] = record
            return
        for member in record.members:
            self.comparisons[record.row, record.guards, member.graph_hash, record.candidate_hash] = record

    def _read(self, conditions: Mapping[str, Any]) -> None:
        whole = self.path.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        if len(kept) < len(whole):
            os.truncate(self.path, len(kept))
        for number, line in enumerate(kept.splitlines(), 1):
            try:
                fields = json.loads(line)
                if number > 1:
                    self._keep(_RECORD.validate_python(fields))
                    continue
            except ValueError as error:
                reason = explain(error) if isinstance(error, ValidationError) else str(error)
                raise UserError(f"{self.path}:{number}: no record ({reason}); remove it, or --no-resume") from None
            self._check(fields, conditions)

    def _check(self, found: Any, conditions: Mapping[str, Any]) -> None:
        known = found if isinstance(found, dict) else {}
        if known.get("kind") != "conditions" or known.get("version") != FILE_VERSION:
            raise UserError(f"{self.path}: not written by this version of bench expert; --no-resume, or another --out")
        for key, value in conditions.items():
            if known.get(key) != value:
                was = _difference(known.get(key), value)
                raise UserError(f"{self.path}: measured with {key} {was}; give --no-resume, or another --out")


def _difference(was: Any, now: Any) -> str:
    """ "a, not b", of mappings only what differs."""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        return ", ".join(f"{key} {was.get(key)}, not {now.get(key)}" for key in keys)
    return f"{was}, not {now}"
