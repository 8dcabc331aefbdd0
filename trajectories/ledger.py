"""Ledger: what a collection's answers have cost so far, one JSON line an answer, appended before the answer is stored.

So a kill can only leave money counted whose answer was lost, never the other way round.
"""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

from trajectories.record import Usage
from trajectories.store import disk_errors


class Ledger:
    """Thread-safe; one process appends (the store's lock sees to that)."""

    def __init__(self, path: Path, *, budget_usd: float | None = None) -> None:
        """budget_usd: for the whole collection, earlier runs included; None is no limit."""
        self.path = path
        self.budget_usd = budget_usd
        self.spent_usd = 0.0
        self.num_answers = 0
        self._ends_torn = False
        self._mutex = threading.Lock()
        if path.exists():
            self._read()

    @property
    def is_spent(self) -> bool:
        """Looked at before each answer: concurrent attempts may overshoot by one answer each."""
        return self.budget_usd is not None and self.spent_usd >= self.budget_usd

    def append(self, trajectory_id: str, turn: int, usage: Usage) -> None:
        """Raises UserError if the disk is full."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "trajectory_id": trajectory_id,
            "turn": turn,
            **usage.model_dump(),
        }
        with self._mutex, disk_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            self.spent_usd += usage.cost_usd
            self.num_answers += 1
            # a line that a kill or a full disk has torn must not swallow the next one
            file.write("\n" * self._ends_torn + json.dumps(line) + "\n")
            self._ends_torn = False
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            self.spent_usd += float(entry.get("cost_usd", 0.0))
            self.num_answers += 1
        self._ends_torn = bool(text) and not text.endswith("\n")
