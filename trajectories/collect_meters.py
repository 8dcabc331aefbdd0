"""What stands between an attempt and its teacher or the evaluator: limits how many ask at once, and counts."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict
from trajectories.environment import AttemptCancelledError
from trajectories.ledger import teacher_of
from trajectories.policies.mixture import MixturePolicy
from trajectories.policy import Policy
from trajectories.record import Message

_POLL_S = 0.5
"""How often a wait for a place looks whether the run is being stopped."""


class Gauge:
    """How many of something are under way, and the time for which they were. Thread-safe."""

    def __init__(self, capacity: int | None = None) -> None:
        """capacity: more than so many do not count as busy; None: no bound."""
        self.capacity = capacity
        self.num_under_way = 0
        self.num_ended = 0
        self._busy_s, self._since = 0.0, time.monotonic()
        self._mutex = threading.Lock()

    def begin(self) -> None:
        with self._mutex:
            self._settle()
            self.num_under_way += 1

    def end(self) -> None:
        with self._mutex:
            self._settle()
            self.num_under_way -= 1
            self.num_ended += 1

    @property
    def busy_s(self) -> float:
        """Seconds times how many, each counted up to the capacity."""
        with self._mutex:
            self._settle()
            return self._busy_s

    def _settle(self) -> None:
        now = time.monotonic()
        num = self.num_under_way if self.capacity is None else min(self.num_under_way, self.capacity)
        self._busy_s += num * (now - self._since)
        self._since = now


class AnswerGate:
    """So many answers of a teacher at a time; others wait. Thread-safe."""

    def __init__(self, limit: int | Mapping[str, int] | None, cancelled: Callable[[], bool]) -> None:
        """limit: of every teacher, or by its name ("*": of the others); None: no limit."""
        self._limits = limit if isinstance(limit, Mapping) else {} if limit is None else {"*": limit}
        self._cancelled = cancelled
        self._places: dict[str, threading.Semaphore] = {}
        self._mutex = threading.Lock()
        self.by_teacher: defaultdict[str, Gauge] = defaultdict(Gauge)
        self.all = Gauge()

    def enter(self, teacher: str) -> None:
        """Wait for a place. Raises AttemptCancelledError when the run is stopped meanwhile."""
        with self._mutex:
            limit = self._limits.get(teacher, self._limits.get("*"))
            if limit is not None and teacher not in self._places:
                self._places[teacher] = threading.Semaphore(limit)
            places, gauge = self._places.get(teacher), self.by_teacher[teacher]
        while places is not None and not places.acquire(timeout=_POLL_S):
            if self._cancelled():
                raise AttemptCancelledError
        gauge.begin()
        self.all.begin()

    def leave(self, teacher: str) -> None:
        self.all.end()
        with self._mutex:
            places, gauge = self._places.get(teacher), self.by_teacher[teacher]
        gauge.end()
        if places is not None:
            places.release()


class GatedPolicy:
    """A Policy whose answers pass the gate. For one attempt, as the policy behind it."""

    def __init__(self, policy: Policy, gate: AnswerGate) -> None:
        self._policy, self._gate = policy, gate
        self.teacher = teacher_of(policy.describe())
        self.answered_at = 0.0
        """time.monotonic() of its last answer."""

    @property
    def is_stateless(self) -> bool:
        """Whether an interrupted attempt can be continued; of a mixture, by the teacher that `choose` came to."""
        return bool(getattr(self._policy, "is_stateless", False))

    def choose(self, task: Task, *, attempt_index: int, seed: int) -> None:
        """Let a mixture choose the attempt's teacher before it is started."""
        if isinstance(self._policy, MixturePolicy):
            self._policy.choose(task, attempt_index=attempt_index, seed=seed)
            self.teacher = teacher_of(self._policy.describe())

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        self._policy.start(task, attempt_index=attempt_index, seed=seed, device=device)
        self.teacher = teacher_of(self._policy.describe())  # a mixture has chosen one now

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        self._gate.enter(self.teacher)
        try:
            answer = self._policy.answer(messages, tools)
            self.answered_at = time.monotonic()
            return answer
        finally:
            self._gate.leave(self.teacher)

    def describe(self) -> dict[str, Any]:
        return self._policy.describe()


class MeteredEvaluator:
    """An Evaluator in front of another that counts what is under way. Closing it is the caller's business."""

    def __init__(self, evaluator: Evaluator, num_judges: int | None) -> None:
        self._evaluator = evaluator
        self.device = evaluator.device
        self.gauge = Gauge(num_judges or 1)

    def submit(
        self, candidate: Candidate | str, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        future = self._evaluator.submit(candidate, task, protocol=protocol, seed=seed)
        if not future.done():  # served from a cache: no judge was asked
            self.gauge.begin()
            future.add_done_callback(lambda done: self.gauge.end())
        return future

    def close(self) -> None:
        pass
