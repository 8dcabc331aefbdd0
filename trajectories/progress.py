"""Progress: how far a collection is, for a reader and on disk.

In a terminal a bar with two lines below it; elsewhere one line a minute. progress.jsonl gets a line a minute in any
case: hours of collecting outlive a kill in it (budget_hours), and rates can be drawn from it afterwards.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from trajectories.store_files import disk_errors, ends_torn, read_json_lines

PROGRESS_FILE = "progress.jsonl"
LINE_EVERY_S = 60.0
DRAW_EVERY_S = 1.0


@dataclass
class Snapshot:
    """Where a collection stands. Rates are of this run, counts of all runs."""

    num_planned: int = 0
    num_finished: int = 0
    num_skipped: int = 0
    """Attempts that a stop rule spares."""
    num_running: int = 0
    num_kept: int = 0
    """Finished attempts that the default selection keeps."""
    num_solved_tasks: int = 0
    median_as_covered: float | None = None
    """Of the final verdicts."""
    num_answers: int = 0
    num_answers_under_way: int = 0
    answers_per_min: float = 0.0
    num_tokens: int = 0
    """Read and written."""
    spent_usd: float = 0.0
    usd_per_h: float = 0.0
    num_evaluations_under_way: int = 0
    evaluator_busy: float = 0.0
    """Share of its judges' time in which they had an evaluation, since the line before."""
    elapsed_s: float = 0.0
    """Of this run."""
    eta_s: float | None = None
    """Until every attempt is made; None: not enough has ended to tell."""
    budget_left: dict[str, float] = field(default_factory=dict)
    """Budget -> share left, of those that are set."""

    def line(self) -> str:
        """All of it on one line."""
        return "; ".join([self.counts(), self.speed(), self.money()])

    def counts(self) -> str:
        done = f"{self.num_finished}/{self.num_planned} attempts"
        done += f" ({self.num_skipped} spared)" if self.num_skipped else ""
        rate = f"{100 * self.num_kept / self.num_finished:.0f}%" if self.num_finished else "-"
        score = "-" if self.median_as_covered is None else f"{self.median_as_covered:.3f}"
        return (
            f"{done}, {self.num_running} running, kept {self.num_kept} ({rate}), "
            f"{self.num_solved_tasks} tasks solved, covered AS {score}"
        )

    def speed(self) -> str:
        eta = "-" if self.eta_s is None else short_time(self.eta_s)
        return (
            f"{self.answers_per_min:.0f} answers/min ({self.num_answers_under_way} under way), "
            f"evaluator {100 * self.evaluator_busy:.0f}% busy ({self.num_evaluations_under_way} asked), ETA {eta}"
        )

    def money(self) -> str:
        left = "".join(f", {100 * share:.0f}% of {name} left" for name, share in self.budget_left.items())
        return f"{self.spent_usd:.2f} USD ({self.usd_per_h:.2f}/h), {short_count(self.num_tokens)} tokens{left}"


class Clock:
    """Time of collecting: of this run, and of the runs before it by progress.jsonl."""

    def __init__(self, root: Path) -> None:
        self.path = root / PROGRESS_FILE
        self._run = uuid.uuid4().hex[:12]
        self._started = time.monotonic()
        self._ends_torn = ends_torn(self.path)
        ends: dict[str, float] = {}
        for entry in read_json_lines(self.path):
            run = str(entry.get("run"))
            ends[run] = max(ends.get(run, 0.0), float(entry.get("elapsed_s", 0.0)))
        self.earlier_s = sum(ends.values())

    @property
    def elapsed_s(self) -> float:
        """Of this run."""
        return time.monotonic() - self._started

    @property
    def total_s(self) -> float:
        """Of all runs."""
        return self.earlier_s + self.elapsed_s

    def note(self, **fields: Any) -> None:
        """Append a line. Raises UserError if the disk is full."""
        entry = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "run": self._run}
        entry |= {"elapsed_s": round(self.elapsed_s, 3)} | fields
        with disk_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._ends_torn + json.dumps(entry, ensure_ascii=False) + "\n")
        self._ends_torn = False


class Display:
    """Draws snapshots: a bar in a terminal, a line a minute elsewhere, nothing when it is switched off."""

    def __init__(self, *, is_on: bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_on = is_on
        self._bars: list[tqdm[Any]] = []
        self._is_terminal = is_on and self._stream.isatty()
        self._next_at = 0.0

    def show(self, snapshot: Snapshot, *, is_last: bool = False) -> None:
        """Draw if it is time."""
        now = time.monotonic()
        if not self._is_on or (now < self._next_at and not is_last):
            return
        self._next_at = now + (DRAW_EVERY_S if self._is_terminal else LINE_EVERY_S)
        if not self._is_terminal:
            print(f"collect: {snapshot.line()}", file=self._stream, flush=True)
            return
        if not self._bars:
            self._bars = [
                tqdm(
                    file=self._stream,
                    initial=snapshot.num_finished,
                    total=snapshot.num_planned,
                    bar_format="{l_bar}{bar}| {desc}",
                    dynamic_ncols=True,
                ),
                *(tqdm(file=self._stream, bar_format="{desc}", position=i, dynamic_ncols=True) for i in (1, 2)),
            ]
            self._bars[0].bar_format = "{percentage:3.0f}%|{bar:20}| {desc}"
        for bar, text in zip(self._bars, (snapshot.counts(), snapshot.speed(), snapshot.money()), strict=True):
            bar.set_description_str(text, refresh=False)
        self._bars[0].total = max(snapshot.num_planned - snapshot.num_skipped, 1)
        self._bars[0].n = snapshot.num_finished
        for bar in self._bars:
            bar.refresh()

    def close(self) -> None:
        for bar in reversed(self._bars):
            bar.close()
        self._bars = []


def as_line(snapshot: Snapshot) -> dict[str, Any]:
    """For progress.jsonl."""
    return {name: round(v, 6) if isinstance(v, float) else v for name, v in asdict(snapshot).items()}


def short_time(seconds: float) -> str:
    """45 s, 12 min, 3.4 h, 5.1 days."""
    for unit, size, digits in (("days", 86_400, 1), ("h", 3_600, 1), ("min", 60, 0)):
        if seconds >= (2 * size if unit == "days" else size):
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def short_count(count: float) -> str:
    """950, 12.3 k, 4.56 M, 1.2 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f}"
