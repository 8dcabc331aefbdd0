"""Plan: which attempts a run makes, in which order; when a task is given up; which share a machine has.

First attempts of all tasks come before second ones, so a run that is stopped early has seen every task. With stop
rules the attempts at one task are made one after another, so that a resume decides as an uninterrupted run would.
"""

from __future__ import annotations

import heapq
import random
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from eval_harness.errors import UserError
from trajectories.collect_index import AttemptRow

TaskOrder = Literal["shuffled", "given"]


class StopRules(BaseModel):
    """When no further attempt at a task is begun. Attempts that have begun are finished."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_as: float | None = Field(default=None, gt=0)
    """The task is solved: an attempt's covered AS (of its final verdict) has come to this."""
    patience: int | None = Field(default=None, ge=1)
    """So many finished attempts in a row have not raised the task's best covered AS."""
    min_gain: float = Field(default=0.02, ge=0)
    """What `patience` takes for a gain, as a share of the best so far."""
    max_kept_per_task: int | None = Field(default=None, ge=1)
    """So many attempts are kept by the default selection."""

    @property
    def is_active(self) -> bool:
        return any(rule is not None for rule in (self.target_as, self.patience, self.max_kept_per_task))

    def reason(self, rows: Iterable[AttemptRow]) -> str | None:
        """Why a task with these attempts is given up; None: go on. Unfinished attempts say nothing."""
        finished = sorted((row for row in rows if row.is_finished), key=lambda row: row.attempt_index)
        scores = [row.score for row in finished if row.score is not None]
        if self.target_as is not None and scores and max(scores) >= self.target_as:
            return "solved"
        if self.max_kept_per_task is not None and sum(row.kept for row in finished) >= self.max_kept_per_task:
            return "enough kept"
        if self.patience is not None and _without_gain(finished, self.min_gain) >= self.patience:
            return "no gain"
        return None


@dataclass(frozen=True)
class Shard:
    """Share `index` (from 1) of `count`."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From "i/n". Raises UserError."""
        found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise UserError(f"--shard {text}: give i/n with i from 1 to n, such as 1/4 on the first of four machines")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def order_tasks(
    tasks: Sequence[Task], *, seed: int, order: TaskOrder = "shuffled", shard: Shard | None = None
) -> list[Task]:
    """The tasks of this machine, in the order in which they are attempted.

    Shards of one list are disjoint, together they are all of it, and their sizes differ by one at most. They are dealt
    from the shuffled list whatever the order is: neighbours in a list are alike, and one machine would get all the
    large ones.
    """
    shuffled = list(range(len(tasks)))
    random.Random(f"tasks {seed}").shuffle(shuffled)
    mine = shuffled[shard.index - 1 :: shard.count] if shard else shuffled
    return [tasks[position] for position in (mine if order == "shuffled" else sorted(mine))]


class Plan:
    """Hands out attempts. Thread-safe."""

    def __init__(
        self, tasks: Sequence[Task], num_attempts: int, rows: Iterable[AttemptRow], rules: StopRules | None = None
    ) -> None:
        """rows: the attempts that the folder holds already."""
        self._tasks, self._num_attempts, self._rules = tasks, num_attempts, rules or StopRules()
        self._positions = {task.task_id: position for position, task in enumerate(tasks)}
        self._rows: defaultdict[str, dict[int, AttemptRow]] = defaultdict(dict)
        for row in rows:
            if row.task_id in self._positions and row.attempt_index < num_attempts:
                self._rows[row.task_id][row.attempt_index] = row
        self.num_planned = len(tasks) * num_attempts
        self.num_finished = sum(row.is_finished for of_task in self._rows.values() for row in of_task.values())
        """Of the planned attempts, so far."""
        self.given_up: dict[str, str] = {}
        """task_id -> why no further attempt at it is begun."""
        self._ready: list[tuple[int, int]] = []
        """A heap of (attempt_index, position of the task)."""
        self._num_running = 0
        self._changed = threading.Condition()
        for position in range(len(tasks)):
            self._offer(position, first=0)

    @property
    def num_skipped(self) -> int:
        """Planned attempts that a rule spares."""
        return sum(self._num_attempts - len(self._rows[task_id]) for task_id in self.given_up)

    @property
    def num_open(self) -> int:
        """Attempts that are neither finished nor spared; with rules, at most so many will be made."""
        return self.num_planned - self.num_finished - self.num_skipped

    @property
    def reasons(self) -> dict[str, int]:
        """Why tasks were given up -> how many."""
        return dict(Counter(self.given_up.values()))

    def take(self, *, timeout_s: float) -> tuple[Task, int] | None:
        """The next attempt; None: nothing became ready within the time. See is_done."""
        with self._changed:
            if not self._ready and self._num_running:
                self._changed.wait(timeout_s)
            if not self._ready:
                return None
            index, position = heapq.heappop(self._ready)
            self._num_running += 1
            return self._tasks[position], index

    @property
    def is_done(self) -> bool:
        """Nothing is ready, and nothing runs that could make something ready."""
        with self._changed:
            return not self._ready and not self._num_running

    def end(self, task: Task, index: int, row: AttemptRow | None) -> None:
        """An attempt that was taken has ended, or (None) was broken off."""
        with self._changed:
            self._num_running -= 1
            if row is not None:
                self._rows[task.task_id][index] = row
                self.num_finished += row.is_finished
                if self._rules.is_active:
                    self._offer(self._positions[task.task_id], first=index + 1)
            self._changed.notify_all()

    def _offer(self, position: int, *, first: int) -> None:
        """Put attempts of a task on the heap: all that are open, or with rules the next one if there is to be one."""
        task_id = self._tasks[position].task_id
        rows = self._rows[task_id]
        for index in range(first, self._num_attempts):
            row = rows.get(index)
            if row is not None and row.is_finished:
                continue
            if self._rules.is_active:
                reason = self._rules.reason(rows.values())
                if reason is not None:
                    self.given_up[task_id] = reason
                    if row is None:
                        continue  # a later one may have begun, under other rules
                heapq.heappush(self._ready, (index, position))
                return
            heapq.heappush(self._ready, (index, position))


def _without_gain(rows: Sequence[AttemptRow], min_gain: float) -> int:
    """Attempts since the last that raised the best score by the share min_gain; one without a score raises nothing."""
    best, count = 0.0, 0
    for row in rows:
        score = row.score or 0.0
        if score > best * (1 + min_gain):
            best, count = score, 0
        else:
            count += 1
    return count
