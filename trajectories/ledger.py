"""Ledger: what a collection's answers have cost so far, one JSON line an answer, appended before the answer is stored.

So a kill can only leave money counted whose answer was lost, never the other way round.
"""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from trajectories.record import Usage
from trajectories.store_files import disk_errors, ends_torn, read_json_lines, write_all


@dataclass
class Spent:
    """What a number of answers have cost together."""

    num_answers: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def num_tokens(self) -> int:
        """Read and written."""
        return self.input_tokens + self.output_tokens

    def add(self, entry: Mapping[str, Any]) -> None:
        """One line of the ledger more."""
        self.num_answers += 1
        self.input_tokens += int(entry.get("input_tokens", 0))
        self.output_tokens += int(entry.get("output_tokens", 0))
        self.cached_tokens += int(entry.get("cached_tokens", 0))
        self.cost_usd += float(entry.get("cost_usd", 0.0))


class Ledger:
    """Thread-safe; one process appends (the store's lock sees to that)."""

    def __init__(self, path: Path) -> None:
        """Reads what is there; creates nothing before the first answer."""
        self.path = path
        self.total = Spent()
        self.by_teacher: defaultdict[str, Spent] = defaultdict(Spent)
        self.by_task: defaultdict[str, Spent] = defaultdict(Spent)
        self.by_attempt: defaultdict[str, Spent] = defaultdict(Spent)
        """By trajectory_id; answers of lives that were begun anew are in it too."""
        self._file: IO[bytes] | None = None
        self._ends_torn = ends_torn(path)
        self._num_written = self._num_synced = 0
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        for entry in read_json_lines(path):
            self._add(entry)

    @property
    def spent_usd(self) -> float:
        return self.total.cost_usd

    @property
    def num_answers(self) -> int:
        return self.total.num_answers

    def append(self, trajectory_id: str, turn: int, usage: Usage, *, teacher: str = "", task_id: str = "") -> None:
        """On disk when it returns. Raises UserError if the disk is full."""
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "trajectory_id": trajectory_id,
            "turn": turn,
            "teacher": teacher,
            "task_id": task_id or trajectory_id.rpartition("__")[0],
            **usage.model_dump(),
        }
        with disk_errors(self.path):
            self._sync(self._write(entry))

    def close(self) -> None:
        with self._writing, self._syncing:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, entry: dict[str, Any]) -> int:
        """Append without waiting for the disk; returns the line's number."""
        with self._writing:
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
            self._add(entry)
            # a line that a kill or a full disk has torn must not swallow the next one
            data = ("\n" * self._ends_torn + json.dumps(entry) + "\n").encode()
            self._ends_torn = True
            write_all(self._file.fileno(), data)
            self._ends_torn = False
            self._num_written += 1
            return self._num_written

    def _sync(self, number: int) -> None:
        """One fsync serves every line written before it: many attempts that end an answer at once wait for one."""
        with self._syncing:
            if self._num_synced >= number or self._file is None:
                return
            upto = self._num_written
            os.fsync(self._file.fileno())
            self._num_synced = upto

    def _add(self, entry: Mapping[str, Any]) -> None:
        trajectory_id = str(entry.get("trajectory_id", ""))
        task_id = str(entry.get("task_id") or trajectory_id.rpartition("__")[0])  # lines of older versions have none
        for spent in (
            self.total,
            self.by_teacher[str(entry.get("teacher", ""))],
            self.by_task[task_id],
            self.by_attempt[trajectory_id],
        ):
            spent.add(entry)


def teacher_of(policy: Mapping[str, Any]) -> str:
    """The short name of what answered, from Policy.describe() or a record's `policy`."""
    return str(policy.get("teacher") or policy.get("model") or policy.get("kind", "unknown"))
