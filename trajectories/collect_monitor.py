"""Monitor: takes the figures of a running collection together, shows them, and writes a line of them every minute."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from statistics import median

from trajectories.budget import BudgetLimits
from trajectories.collect_index import AttemptRow
from trajectories.collect_meters import AnswerGate, MeteredEvaluator
from trajectories.ledger import Ledger
from trajectories.plan import Plan
from trajectories.progress import LINE_EVERY_S, Clock, Display, Snapshot, as_line

_MIN_ENDED_FOR_ETA = 3
_WINDOW_S = 60.0
"""Over so long the evaluator's share is taken."""


class Monitor:
    """`ended` may be called by any thread, the rest by the one that watches."""

    def __init__(
        self,
        *,
        plan: Plan,
        ledger: Ledger,
        clock: Clock,
        gate: AnswerGate,
        evaluator: MeteredEvaluator,
        limits: BudgetLimits,
        rows: Sequence[AttemptRow],
        display: Display,
    ) -> None:
        self._plan, self._ledger, self._clock, self._gate = plan, ledger, clock, gate
        self._gauge, self._limits, self._display = evaluator.gauge, limits, display
        self._mutex = threading.Lock()
        self._finished = [row for row in rows if row.is_finished]
        self._num_ended = self._num_running = 0
        self._answers_before, self._usd_before = ledger.num_answers, ledger.spent_usd
        self._busy: deque[tuple[float, float]] = deque([(time.monotonic(), self._gauge.busy_s)])
        self._next_line_at = 0.0

    def began(self) -> None:
        with self._mutex:
            self._num_running += 1

    def ended(self, row: AttemptRow | None) -> None:
        """An attempt has ended, or (None) was broken off."""
        with self._mutex:
            self._num_running -= 1
            if row is not None:
                self._num_ended += 1
                self._finished += [row] if row.is_finished else []

    def tick(self, *, is_last: bool = False) -> None:
        """Draw and write what is due. Raises UserError if the disk is full."""
        now = time.monotonic()
        self._busy.append((now, self._gauge.busy_s))
        while len(self._busy) > 2 and now - self._busy[1][0] > _WINDOW_S:
            self._busy.popleft()
        snapshot = self.snapshot()
        self._display.show(snapshot, is_last=is_last)
        if is_last or now >= self._next_line_at:
            self._next_line_at = now + LINE_EVERY_S
            self._clock.note(**as_line(snapshot))

    def close(self) -> None:
        self._display.close()

    def snapshot(self) -> Snapshot:
        elapsed_s = max(self._clock.elapsed_s, 1e-9)
        with self._mutex:
            rows, num_ended, num_running = list(self._finished), self._num_ended, self._num_running
        scores = [row.final_as_covered for row in rows if row.final_as_covered is not None]
        total = self._ledger.total
        left: dict[str, float] = {}
        for name, limit, used in (
            ("budget_usd", self._limits.usd, total.cost_usd),
            ("budget_tokens", self._limits.tokens, total.num_tokens),
            ("budget_hours", self._limits.hours, self._clock.total_s / 3600),
        ):
            if limit is not None:
                left[name] = max(0.0, 1 - used / limit) if limit else 0.0
        (since, busy_before), (now, busy) = self._busy[0], self._busy[-1]
        capacity = self._gauge.capacity or 1
        return Snapshot(
            num_planned=self._plan.num_planned,
            num_finished=self._plan.num_finished,
            num_skipped=self._plan.num_skipped,
            num_running=num_running,
            num_kept=sum(row.kept for row in rows),
            num_solved_tasks=len({row.task_id for row in rows if row.is_solved}),
            median_as_covered=median(scores) if scores else None,
            num_answers=total.num_answers,
            num_answers_under_way=self._gate.all.num_under_way,
            answers_per_min=60 * (total.num_answers - self._answers_before) / elapsed_s,
            num_tokens=total.num_tokens,
            spent_usd=total.cost_usd,
            usd_per_h=3600 * (total.cost_usd - self._usd_before) / elapsed_s,
            num_evaluations_under_way=self._gauge.num_under_way,
            evaluator_busy=min(1.0, (busy - busy_before) / (capacity * (now - since))) if now > since else 0.0,
            elapsed_s=elapsed_s,
            eta_s=self._plan.num_open * elapsed_s / num_ended if num_ended >= _MIN_ENDED_FOR_ETA else None,
            budget_left=left,
        )
