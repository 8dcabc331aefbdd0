"""What a JudgePool handles: the judge that a slot drives, the evaluation in the queue, and the pool's figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Protocol

from data.graph import MalformedGraphError
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, ReferenceFailedError, UserError
from eval_harness.presets import EvaluationProtocol
from eval_harness.retries import Tries
from eval_harness.verdict import Verdict

Progress = Callable[[str], None]


class QueueFullError(RuntimeError):
    """As many evaluations wait as may wait; nothing was queued."""


class Judge(Protocol):
    """What a slot drives. All but interrupt are called by the slot's own thread."""

    @property
    def device(self) -> str: ...

    @property
    def is_started(self) -> bool:
        """Whether it lives, as far as can be told without asking it."""
        ...

    def start(self) -> None:
        """Raises HarnessError, or UserError for a mistake in the set-up."""
        ...

    def evaluate(
        self,
        subject: Candidate | str,
        task: Task,
        protocol: EvaluationProtocol,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> Verdict:
        """Starts the judge if need be. Raises HarnessError, and MalformedGraphError for the task's own files."""
        ...

    def interrupt(self) -> None:
        """End what it does, from any thread; evaluate or start then raises HarnessError."""
        ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class EvaluationFuture(Future[Verdict]):
    """A Future whose cancel() also takes a waiting evaluation out of the queue."""

    def __init__(self) -> None:
        super().__init__()
        self.forget: Callable[[], object] = lambda: None

    def cancel(self) -> bool:
        was_cancelled = self.cancelled()
        if not super().cancel():
            return False
        if not was_cancelled:
            self.forget()
        return True


@dataclass(order=True)
class Job:
    """One evaluation in the queue; the earliest submitted is the smallest."""

    order: int
    tries: Tries = field(compare=False)
    future: EvaluationFuture = field(compare=False)
    progress: Progress | None = field(compare=False, default=None)
    is_cancelled: bool = field(compare=False, default=False)
    is_running: bool = field(compare=False, default=False)
    """From its first try on."""

    def set_running(self) -> bool:
        """Whether it is to be run; False: it was cancelled. A second try has a future that runs already."""
        self.is_running = self.is_running or self.future.set_running_or_notify_cancel()
        return self.is_running

    def end_cancelled(self) -> None:
        """Tell those who wait for it; a future that runs already can only be given an error."""
        if self.is_running:
            self.future.set_exception(CancelledError())
        elif self.future.cancelled():
            self.future.set_running_or_notify_cancel()


@dataclass(eq=False)
class Slot:
    """One judge of a pool and what it does."""

    judge: Judge
    state: str = "idle"
    """"idle", "starting" or "busy"."""
    job: Job | None = None
    num_served: int = 0
    """Tries given to the judge that it has now."""
    must_start: bool = False
    start_failures: int = 0
    """In a row."""
    would_not_start: bool = False
    """When it was last tried, again and again."""
    retry_at: float = 0.0
    """time.monotonic() before which a judge that would not start is left alone."""
    busy_since: float = 0.0

    def run(self, job: Job, *, tell: Progress | None, is_final: Callable[[], bool]) -> Verdict | None:
        """One try of an evaluation. None: it is to be tried again. Raises what ends the evaluation.

        is_final: whether a failure is to be raised as it is, whatever tries are left.
        """
        tries, judge = job.tries, self.judge
        if tries.needs_fresh_judge and self.num_served:
            judge.kill()
            self.num_served = 0
        self.num_served += 1
        tellers = [each for each in (tell, job.progress) if each is not None]

        def progress(text: str) -> None:
            for each in tellers:
                each(text)

        try:
            verdict = judge.evaluate(
                tries.candidate,
                tries.task,
                tries.protocol,
                seed=tries.next_seed,
                progress=progress if tellers else None,
            )
        except (MalformedGraphError, UserError, ReferenceFailedError):
            raise  # the judge's own answers: it goes on
        except HarnessError as error:
            judge.kill()
            if is_final():
                raise
            return tries.book_failure(error, judge.device)
        except BaseException:
            judge.kill()  # in the middle of an answer
            raise
        return tries.book_verdict(verdict)


def wanted_slots(slots: Sequence[Slot], num_waiting: int) -> list[Slot]:
    """The idle slots that should turn to the queue: those with a judge first, then by the load of their devices."""
    now = time.monotonic()
    idle = [slot for slot in slots if slot.state == "idle" and now >= slot.retry_at]
    load: dict[str, int] = {}
    for slot in slots:
        load[slot.judge.device] = load.get(slot.judge.device, 0) + (slot.state != "idle")
    idle.sort(key=lambda slot: load[slot.judge.device])
    warm = [slot for slot in idle if slot.judge.is_started]
    cold = [slot for slot in idle if slot not in warm]
    num_starting = sum(slot.state == "starting" for slot in slots)
    warm = warm[:num_waiting]
    return warm + cold[: max(0, num_waiting - len(warm) - num_starting)]


@dataclass
class PoolMetrics:
    """What a pool has done and what it is doing; counts are of evaluations unless they say otherwise."""

    submitted: int = 0
    complete: int = 0
    """Ended in a scored verdict."""
    incomplete: int = 0
    """Ended UNSTABLE."""
    failed: int = 0
    """Ended in an error: ours, or a malformed task."""
    cancelled: int = 0
    retried: int = 0
    """Tries after the first."""
    judges_started: int = 0
    start_failures: int = 0
    busy_s: dict[str, float] = field(default_factory=dict)
    """Device -> seconds that its judges spent on evaluations that have ended; "seconds judged", not GPU time."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Outcome -> graphs of complete verdicts."""
    last_error: str = ""
    queue_depth: int = 0
    num_running: int = 0
    num_judges: int = 0
    num_alive: int = 0
    num_starting: int = 0

    def book_end(self, ended: Verdict | BaseException) -> None:
        """Count an evaluation that has ended."""
        if isinstance(ended, CancelledError):
            self.cancelled += 1
        elif isinstance(ended, BaseException):
            self.failed += 1
            self.last_error = str(ended)
        elif ended.complete:
            self.complete += 1
            outcomes = Counter(self.outcomes) + Counter(graph.outcome.value for graph in ended.graphs)
            self.outcomes = dict(outcomes)
        else:
            self.incomplete += 1

    def book_busy(self, device: str, seconds: float) -> None:
        self.busy_s[device] = self.busy_s.get(device, 0.0) + seconds

    def look_at(self, slots: Sequence[Slot], *, queue_depth: int) -> None:
        """Take down what is so at this moment."""
        self.queue_depth = queue_depth
        self.num_judges = len(slots)
        self.num_running = sum(slot.job is not None for slot in slots)
        self.num_starting = sum(slot.state == "starting" for slot in slots)
        self.num_alive = sum(slot.judge.is_started and slot.state != "starting" for slot in slots)
