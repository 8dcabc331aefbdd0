"""JudgePool: a queue of evaluations in front of judges, wherever the judges are. Loads without torch.

    submit -> queue (bounded, in order) -> a slot (one thread, one judge) -> retries.Tries -> the future

A judge is started by the first evaluation that needs it, several side by side. What is tried again goes back to the
head of the queue, so that any judge may take it. LocalExecutor and RayExecutor are this pool with their own judges.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from typing import Self

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError
from eval_harness.pool_records import (
    EvaluationFuture,
    Job,
    Judge,
    PoolMetrics,
    Progress,
    QueueFullError,
    Slot,
    wanted_slots,
)
from eval_harness.presets import EvaluationProtocol
from eval_harness.retries import MAX_TRIES, Tries, draw_seed
from eval_harness.verdict import Verdict

log = logging.getLogger(__name__)

DEFAULT_MAX_WAITING = 256
RESTART_AFTER_S = 30.0
"""A judge that would not start is tried again after this time, while others serve."""
CLOSE_GRACE_S = 15.0
"""An evaluation that takes longer when the pool is closed is ended."""


class JudgePool:
    """Evaluations in the order of submission, on as many judges as are given. Thread-safe; a context manager."""

    device: str = "cpu"

    def __init__(
        self, judges: Sequence[Judge], *, progress: Progress | None = None, max_waiting: int = DEFAULT_MAX_WAITING
    ) -> None:
        """max_waiting: submit blocks while so many wait. progress: told the stage of every evaluation."""
        self.max_waiting = max_waiting
        self._progress = progress
        self._condition = threading.Condition()
        self._waiting: list[Job] = []
        self._order = itertools.count()
        self._metrics = PoolMetrics()
        self._closed = False
        self._slots = [Slot(judge) for judge in judges]
        self._threads = [threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in self._slots]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # an error or Ctrl-C passes through: what runs is worth nothing any more, and is not tried again
        self.close(grace_s=CLOSE_GRACE_S if kind is None else 0.0)

    @property
    def _judges(self) -> list[Judge]:
        return [slot.judge for slot in self._slots]

    def start_all(self) -> None:
        """Begin to start every judge now, side by side; does not wait."""
        with self._condition:
            for slot in self._slots:
                slot.must_start = True
            self._condition.notify_all()

    def submit(
        self,
        candidate: Candidate | str,
        task: Task,
        *,
        protocol: EvaluationProtocol,
        seed: int | None = None,
        progress: Progress | None = None,
        block: bool = True,
    ) -> EvaluationFuture:
        """Queue one evaluation of a candidate, or of a baseline by name.

        seed None draws a secret one. progress: told the stage of this evaluation, by another thread. While the queue is
        full it blocks, or with block=False raises QueueFullError.
        """
        tries = Tries(candidate, task, protocol, draw_seed() if seed is None else seed)
        with self._condition:
            while len(self._waiting) >= self.max_waiting and not self._closed:
                if not block:
                    raise QueueFullError(f"{len(self._waiting)} evaluations wait already")
                self._condition.wait()
            if self._closed:
                raise RuntimeError("the executor is closed")
            job = Job(next(self._order), tries, EvaluationFuture(), progress)
            job.future.forget = lambda: self._forget(job)
            heapq.heappush(self._waiting, job)
            self._metrics.submitted += 1
            self._condition.notify_all()
            return job.future

    def cancel_running(self, future: Future[Verdict]) -> bool:
        """Cancel an evaluation, also one that runs: its judge is ended, and a fresh one takes the next evaluation.

        The future's result is then a CancelledError. False if it was finished already or is not of this pool.
        """
        if future.cancel():
            return True
        with self._condition:
            for slot in self._slots:
                if slot.job is not None and slot.job.future is future:
                    slot.job.is_cancelled = True
                    slot.judge.interrupt()
                    return True
            retried = next((job for job in self._waiting if job.future is future), None)
            return retried is not None and self._forget(retried)

    def metrics(self) -> PoolMetrics:
        """What the pool has done and what it is doing."""
        with self._condition:
            self._metrics.look_at(self._slots, queue_depth=len(self._waiting))
            return copy.deepcopy(self._metrics)

    def close(self, *, grace_s: float = CLOSE_GRACE_S) -> None:
        """Cancel what waits, finish what runs within grace_s, end the judges."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            waiting = list(self._waiting)
            for slot in self._slots:
                if slot.state == "starting" or grace_s <= 0:
                    slot.judge.interrupt()
            self._condition.notify_all()
        for job in waiting:
            if not job.future.cancel():
                self._forget(job)  # it waits for its second try
        self._join(grace_s)
        # again and again: a judge may be between its start and the moment from which it can be interrupted
        deadline = time.monotonic() + CLOSE_GRACE_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            for slot in self._slots:
                slot.judge.interrupt()
            self._join(0.5)

    def _join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _forget(self, job: Job) -> bool:
        """Take a cancelled evaluation out of the queue; False if it is not there any more."""
        with self._condition:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            heapq.heapify(self._waiting)
            self._metrics.cancelled += 1
            job.end_cancelled()
            self._condition.notify_all()
            return True

    # what a slot's thread does

    def _serve(self, slot: Slot) -> None:
        try:
            while self._await_work(slot):
                if self._has_judge(slot) and (job := self._take(slot)) is not None:
                    self._run(slot, job)
        finally:
            slot.judge.close()

    def _await_work(self, slot: Slot) -> bool:
        """Wait until this slot is wanted; False when the pool is closed."""
        with self._condition:
            while not self._closed:
                if slot.must_start or slot in wanted_slots(self._slots, len(self._waiting)):
                    slot.must_start = False
                    slot.state = "busy" if slot.judge.is_started else "starting"
                    return True
                self._condition.wait(timeout=RESTART_AFTER_S if self._waiting else None)
            return False

    def _has_judge(self, slot: Slot) -> bool:
        """Start the slot's judge unless it lives. A failure is the first waiting evaluation's if no judge starts."""
        if slot.judge.is_started:
            return True
        try:
            slot.judge.kill()
            slot.num_served = 0
            slot.judge.start()
        except Exception as error:
            if self._closed:
                return False
            log.warning("a judge for %s did not start: %s", slot.judge.device, error)
            self._book_start_failure(slot, error)
            return False
        with self._condition:
            self._metrics.judges_started += 1
            slot.start_failures, slot.would_not_start = 0, False
            return True

    def _book_start_failure(self, slot: Slot, error: Exception) -> None:
        job = None
        with self._condition:
            slot.state = "idle"
            slot.start_failures += 1
            self._metrics.last_error = str(error)
            self._metrics.start_failures += 1
            if slot.start_failures >= MAX_TRIES or not isinstance(error, HarnessError):
                slot.start_failures = 0
                slot.would_not_start = True
                if any(not other.would_not_start for other in self._slots):
                    slot.retry_at = time.monotonic() + RESTART_AFTER_S
                elif self._waiting:
                    job = heapq.heappop(self._waiting)
            self._condition.notify_all()
        if job is not None and job.set_running():
            with self._condition:
                self._metrics.book_end(error)
            job.future.set_exception(error)

    def _take(self, slot: Slot) -> Job | None:
        """The next evaluation, or None: another slot was faster."""
        with self._condition:
            while self._waiting and not self._closed:
                job = heapq.heappop(self._waiting)
                self._condition.notify_all()  # one more may be submitted
                if job.set_running():
                    slot.job, slot.state, slot.busy_since = job, "busy", time.monotonic()
                    return job
                self._metrics.cancelled += 1
            slot.state = "idle"
            self._condition.notify_all()
            return None

    def _run(self, slot: Slot, job: Job) -> None:
        outcome: Verdict | BaseException | None
        try:
            outcome = slot.run(job, tell=self._progress, is_final=lambda: self._closed or job.is_cancelled)
        except BaseException as error:
            outcome = error
        with self._condition:
            self._metrics.book_busy(slot.judge.device, time.monotonic() - slot.busy_since)
            slot.job, slot.state = None, "idle"
            if job.is_cancelled:
                outcome = CancelledError()
            elif outcome is None and self._closed:
                outcome = HarnessError("the executor was closed before the second try")
            if outcome is None:
                self._metrics.retried += 1
                heapq.heappush(self._waiting, job)
            else:
                self._metrics.book_end(outcome)
            self._condition.notify_all()
        if isinstance(outcome, BaseException):
            job.future.set_exception(outcome)
        elif outcome is not None:
            job.future.set_result(outcome)
