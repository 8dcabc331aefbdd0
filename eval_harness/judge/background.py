"""Work that a candidate does while nobody asked it: beside eager's timed blocks it makes eager look slow or unsteady.

The judge knows when the candidate is to be idle: while a block of the reference runs. What its processes burn then is
counted by the kernel's clocks of processes (all threads, in nanoseconds), and what it left on the device shows in how
long it takes, after that block, to come to rest. Both cost microseconds and touch neither side.

Covered: spinning threads and child processes, kernels launched from the background. Not covered: memory traffic of a
device that neither its process nor its queue shows.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from eval_harness.judge.workers import Worker
from eval_harness.process_tree import descendants
from eval_harness.verdict import Violation

MAX_SHARE = 0.05
"""Of the time in which it was to be idle: more is work. A worker that waits for a message uses under 0.1%."""
MIN_WORK_S = 0.01
"""Less processor time than this over a whole measurement is nobody's gain."""
MIN_REST_S = 5e-4
"""Coming to rest takes an idle device tens of microseconds, and less than this on a busy machine."""
MIN_BLOCKS = 8


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of these processes so far, over all threads, ended ones too. A process that is gone counts 0."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            # the kernel's clock of another process: CPUCLOCK_SCHED of its whole thread group (clock_getcpuclockid(3))
            total += time.clock_gettime((~pid << 3) | 2)
    return total


def processes_of(worker: Worker) -> list[int]:
    """The worker's process and all below it, as the judge's /proc shows them."""
    found = [worker.pid]
    try:
        for pid in found:  # grows while it is gone through
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    except (OSError, ValueError):
        # a kernel without that file, or a process that just ended: the slow way, over all of /proc
        return [worker.pid, *descendants(worker.pid)]
    return found


class BackgroundWork:
    """What one worker did while it was to be idle, over one measurement."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._pids = processes_of(worker)
        self.work_s = 0.0
        self.idle_s = 0.0
        """Wall clock for which the worker was to be idle."""
        self._rests: list[tuple[float, float]] = []

    def look_for_children(self) -> None:
        """Now and then: it costs a millisecond."""
        self._pids = processes_of(self._worker)

    @contextlib.contextmanager
    def idle(self) -> Iterator[None]:
        """Around what runs while the worker is to be idle."""
        before, started = cpu_seconds(self._pids), time.perf_counter()
        yield
        self.idle_s += time.perf_counter() - started
        # a process that went away takes its clock with it
        self.work_s += max(cpu_seconds(self._pids) - before, 0.0)

    def came_to_rest(self, worker_s: float, reference_s: float) -> None:
        """How long a synchronisation took this worker after its idle time, and the reference after its own."""
        self._rests.append((worker_s, reference_s))

    def violation(self) -> Violation | None:
        """The rule that was broken, if one was."""
        if self.work_s > max(MAX_SHARE * self.idle_s, MIN_WORK_S):
            share = self.work_s / self.idle_s
            return _violation(
                f"used {share:.0%} of a processor while eager was timed and nothing was asked of it; leave no thread "
                "or process working after a call returns"
            )
        if len(self._rests) >= MIN_BLOCKS:
            # in three quarters of the pairs: a busy machine delays either side as often as the other
            excess = statistics.quantiles([ours - theirs for ours, theirs in self._rests], n=4)[0]
            if excess > max(MAX_SHARE * self.idle_s / len(self._rests), MIN_REST_S):
                return _violation(
                    f"its device came to rest {excess * 1e3:.1f} ms after it was to be idle; launch nothing that "
                    "outlives a call"
                )
        return None


def _violation(message: str) -> Violation:
    return Violation(rule="behaviour.background-work", layer="behaviour", message=message)
