"""RolloutBatch: the loop of run_rollouts over its attempts. What an attempt is: rollout_attempt.py.

The main thread talks to the engine and does everything with tokens; an environment's thread executes one answer. They
meet in a queue. With a collective engine, each turn of the loop begins with what all ranks agree on.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from eval_harness.errors import HarnessError
from training.generation import Generated, GenerationEngine
from training.lockstep import any_rank
from training.rollout_attempt import Attempt
from training.rollout_records import Rollout, RolloutHooks, RolloutLimits, Span, measure_times
from trajectories.environment import AttemptCancelledError, StepResult
from trajectories.record import StopReason

if TYPE_CHECKING:
    from trajectories.store import TrajectoryStore

logger = logging.getLogger(__name__)

_WAIT_S = 0.5
"""Longest wait for an environment before the clock and the hooks are looked at again."""
_TOGETHER_WAIT_S = 0.02
"""The same where other ranks wait for this one."""
_GRACE_S = 30.0
"""How long environments may take to notice that the batch was stopped; then their threads are left behind."""

_Event = tuple[Attempt, StepResult | BaseException | None]
"""What an environment's thread has to say: None after begin, a result after a step, or what it raised."""


class RolloutBatch:
    """The loop over the attempts of one call. Everything but the environments' work runs in the caller's thread."""

    def __init__(
        self, engine: GenerationEngine, limits: RolloutLimits, store: TrajectoryStore | None, hooks: RolloutHooks
    ) -> None:
        self.engine, self.limits, self.store, self.hooks = engine, limits, store, hooks
        self.is_stopped = False
        self._why_stopped, self._by_caller, self._stopped_at = "", False, 0.0
        self._answers: list[Generated] = []
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._generating: dict[str, Attempt] = {}
        self._stepping: dict[str, Attempt] = {}
        self._finished: dict[str, Rollout] = {}
        self._generation_spans: list[Span] = []
        self._attempts: list[Attempt] = []
        # makes a thread when one is needed and none is idle
        self._threads = ThreadPoolExecutor(limits.num_threads, thread_name_prefix="rollout")

    def run(self, begin: Callable[[], None]) -> dict[str, Rollout]:
        """Key -> rollout. begin: submits the attempts."""
        began = time.monotonic()
        deadline = None if self.limits.wall_limit_s is None else began + self.limits.wall_limit_s
        work, look_around = begin, partial(self._look_around, deadline)
        while True:
            error = self._catch(work)
            work = look_around
            is_unfinished, may_generate, has_failed = self._agree(error)
            if error is not None:
                raise error
            if has_failed:
                raise HarnessError("another rank failed during the rollouts; its log says why")
            if not is_unfinished:
                break
            if may_generate:
                started = time.monotonic()
                self._answers += self.engine.step()
                if self._generating:
                    self._generation_spans.append((started, time.monotonic()))
            else:
                self._wait(deadline)
        self._threads.shutdown(wait=False)
        environment = [span for attempt in self._attempts for span in attempt.environment_spans]
        self.hooks.timed(measure_times(began, time.monotonic(), self._generation_spans, environment))
        return self._finished

    def abandon(self) -> None:
        """Stop what is under way, without its results."""
        self.is_stopped = True
        for key in self._generating:
            self.engine.cancel(key)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _catch(self, work: Callable[[], None]) -> BaseException | None:
        """What the work raised: other ranks must hear of it before it is raised here."""
        try:
            work()
        except BaseException as error:
            if not self.engine.is_collective:
                raise
            return error
        return None

    def _agree(self, error: BaseException | None) -> list[bool]:
        """Is anything unfinished; is there anything to generate; has anybody failed. Of all ranks that go together."""
        own = [bool(self._generating or self._stepping), bool(self._generating), error is not None]
        return any_rank(own, self.engine.process_group) if self.engine.is_collective else own

    def _look_around(self, deadline: float | None) -> None:
        """Everything that has happened since, without waiting."""
        while self._answers:
            self._take_answer(self._answers.pop())
        while not self._events.empty():
            self._take_event(self._events.get())
        if not self.is_stopped:
            if self.hooks.cancelled():
                self._stop("the run was stopped", by_caller=True)
            elif deadline is not None and time.monotonic() >= deadline:
                self._stop(f"no verdict within wall_limit_s ({self.limits.wall_limit_s:g} s of the whole batch)")
        elif time.monotonic() > self._stopped_at + _GRACE_S:
            for attempt in list(self._stepping.values()):  # their threads hang: what they say later is not heard
                self._end_stopped(attempt, waits=True)

    def _wait(self, deadline: float | None) -> None:
        """Until an environment has something to say; not for long."""
        longest = _TOGETHER_WAIT_S if self.engine.is_collective else _WAIT_S
        if deadline is not None and not self.is_stopped:
            longest = min(longest, max(0.0, deadline - time.monotonic()))
        try:
            event = self._events.get(timeout=longest)
        except queue.Empty:
            return
        self._events.put(event)  # read in its place, where an error is told to the others

    def submit(self, attempt: Attempt, *, first: bool = False) -> None:
        """Hand an attempt to an environment's thread."""
        if first:
            self._attempts.append(attempt)
        self._stepping[attempt.request.key] = attempt
        self._threads.submit(self._work, attempt, first)

    def _work(self, attempt: Attempt, first: bool) -> None:
        """In an environment's thread."""
        result: StepResult | None = None
        try:
            if first:
                attempt.begin()
            else:
                result = attempt.step()
        except BaseException as error:
            self._events.put((attempt, error))
        else:
            self._events.put((attempt, result))

    def _take_event(self, event: _Event) -> None:
        attempt, result = event
        if self._stepping.pop(attempt.request.key, None) is None:
            return  # given up
        if isinstance(result, AttemptCancelledError):
            self._end_stopped(attempt, waits=True)
            return
        if isinstance(result, HarnessError):
            attempt.fail(StopReason.HARNESS_ERROR, f"{type(result).__name__}: {result}")
        elif isinstance(result, BaseException):
            raise result
        elif result is None:
            attempt.take_prompt()
        else:
            attempt.take_result(result)
        if attempt.stop_reason is None and self.is_stopped:
            self._end_stopped(attempt, waits=result is None)
        elif attempt.stop_reason is None:
            self._generating[attempt.request.key] = attempt
            self.engine.submit(attempt.next_request())
        else:
            self._finish(attempt)

    def _take_answer(self, generated: Generated) -> None:
        attempt = self._generating.pop(generated.key, None)
        if attempt is None:
            return  # cancelled
        attempt.take_answer(generated)
        if attempt.stop_reason is None:
            self.submit(attempt)
        else:
            self._finish(attempt)

    def _stop(self, why: str, *, by_caller: bool = False) -> None:
        self.is_stopped, self._stopped_at = True, time.monotonic()
        self._why_stopped, self._by_caller = why, by_caller
        for key, attempt in list(self._generating.items()):
            self.engine.cancel(key)
            del self._generating[key]
            self._end_stopped(attempt, waits=False)

    def _end_stopped(self, attempt: Attempt, *, waits: bool) -> None:
        """waits: for its environment, so that it is not the student who was slow."""
        self._stepping.pop(attempt.request.key, None)
        if waits or self._by_caller:
            attempt.fail(StopReason.HARNESS_ERROR, self._why_stopped)
        else:
            attempt.stop_reason = StopReason.TIME_LIMIT
        self._finish(attempt)

    def _finish(self, attempt: Attempt) -> None:
        rollout = attempt.rollout()
        self._finished[attempt.request.key] = rollout
        if rollout.infrastructure_failure:
            logger.warning("rollout %s: %s", rollout.request.key, rollout.trajectory.error)
        if self.store is not None:
            self.store.write(rollout.trajectory)
        self.hooks.finished(rollout)
