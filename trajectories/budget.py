"""Budget: may a further answer be asked for? Money, tokens and hours of a whole collection, earlier runs included."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trajectories.ledger import Ledger

_RECENT_ANSWERS = 64
"""From so many the cost of the answers that are under way is guessed: conversations grow, so the newest count."""


@dataclass(frozen=True)
class BudgetLimits:
    """None is no limit."""

    usd: float | None = None
    tokens: int | None = None
    """Read and written."""
    hours: float | None = None
    """Of collecting, all runs together; not of the evaluator."""


class Budget:
    """Thread-safe. Answers under way count as what recent ones cost, so that many attempts overshoot by about one.

    That is a guess: an attempt that would exceed the budget by it alone waits until the answers have come. Before the
    first answer of all there is nothing to guess from, so it is asked for alone.
    """

    def __init__(self, limits: BudgetLimits, ledger: Ledger, elapsed_s: Callable[[], float]) -> None:
        """elapsed_s: seconds of collecting so far, earlier runs included."""
        self.limits, self._ledger, self._elapsed_s = limits, ledger, elapsed_s
        self._under_way: set[str] = set()
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT_ANSWERS)
        if total := ledger.num_answers:  # of earlier runs: the mean is the best guess that there is
            self._recent.append((ledger.total.cost_usd / total, ledger.total.num_tokens / total))
        self._changed = threading.Condition()

    def take(self, attempt: str) -> str | None:
        """Note that an attempt is about to ask; or what is spent, as text, and nothing is noted.

        It may come to be spent only if the answers under way cost what is guessed: see `spent` and `wait`.
        """
        with self._changed:
            if (spent := self._spent(len(self._under_way - {attempt}))) is None:
                self._under_way.add(attempt)
            return spent

    def give_back(self, attempt: str) -> None:
        """The attempt's answer has come, or will not come."""
        with self._changed:
            self._under_way.discard(attempt)
            self._changed.notify_all()

    def book(self, attempt: str, cost_usd: float, num_tokens: int) -> None:
        """What an answer has cost; call it after the ledger has it."""
        with self._changed:
            self._under_way.discard(attempt)
            self._recent.append((cost_usd, num_tokens))
            self._changed.notify_all()

    def wait(self, *, timeout_s: float) -> None:
        """Until an answer has come, or the time is over."""
        with self._changed:
            if self._under_way:
                self._changed.wait(timeout_s)

    @property
    def spent(self) -> str | None:
        """Which budget is used up, by what is in the ledger; None: none."""
        with self._changed:
            return self._spent(0)

    def _spent(self, num_under_way: int) -> str | None:
        limits = self.limits
        if num_under_way and not self._recent and (limits.usd is not None or limits.tokens is not None):
            return "what a first answer costs is not known yet"
        num_recent = len(self._recent) or 1
        usd = self._ledger.total.cost_usd + num_under_way * sum(cost for cost, _ in self._recent) / num_recent
        tokens = self._ledger.total.num_tokens + num_under_way * sum(count for _, count in self._recent) / num_recent
        # half a millionth of a cent: sums of floats must not buy one answer more
        if limits.usd is not None and usd >= limits.usd - 5e-9:
            return f"budget_usd of {limits.usd:.2f}"
        if limits.tokens is not None and tokens >= limits.tokens:
            return f"budget_tokens of {limits.tokens}"
        if limits.hours is not None and self._elapsed_s() >= limits.hours * 3600:
            return f"budget_hours of {limits.hours:g}"
        return None
