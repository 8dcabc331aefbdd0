"""Work that a candidate does while nobody asked it. Beside eager's timed blocks it makes eager look slow or unsteady;
after an answer that came too early no block is charged with it.

The judge knows when a worker is to be idle: from its answer to the next request. What its processes burn then is
counted by the kernel's clocks of processes (all threads, in nanoseconds), and what it left on the device shows in how
long it takes to come to rest. The reference is watched alike, and what it uses between requests is nobody's fault.

Covered: spinning threads and child processes, answers before the work is done, kernels launched from the background.
Not covered: memory traffic of a device that neither its process nor its queue shows.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from eval_harness.judge.workers import Worker
from eval_harness.process_tree import descendants
from eval_harness.verdict import Violation

MAX_SHARE = 0.02
"""Of the time for which it was asked to work: more beside that is work. The reference was seen to use 0.05%; a pass
that computed between blocks used 4% to 9%, because the rest of it ran while the next request waited."""
MIN_WORK_S = 0.004
"""Less processor time than this over a whole measurement is nobody's gain."""
MIN_REST_S = 5e-4
"""Coming to rest takes an idle device tens of microseconds, and less than this on a busy machine."""
MIN_BLOCKS = 8
UNTIMED_OPS = frozenset({"load_windows", "ready"})
"""Requests beside the timed blocks that run none of the candidate's code: they cost both sides the same."""
MAX_UNTIMED_EXCESS = 0.3
"""Of what the same requests cost the reference: where pages and caches lie makes one copy dearer than another."""
MAX_UNTIMED_SHARE = 0.05
"""Of the time for which it was asked to work. Preparing a block's outputs there took 13% to 16%."""
MIN_UNTIMED_S = 0.01
"""On busy machines the sides were seen up to 6 ms apart over a short measurement."""


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
    """What one worker did between requests, over one measurement."""

    def __init__(self, worker: Worker, *, has_device: bool = True) -> None:
        """has_device: it computes elsewhere than in its processes, so that its coming to rest says something."""
        self._worker = worker
        self._has_device = has_device
        self._pids = processes_of(worker)
        self._answered_at: float | None = None
        self._asked_at = 0.0
        self._used_at_asking_s = 0.0
        self._is_untimed = False
        self.has_settled = False
        """Set after the first cluster: until then a process that was forked later still gets its memory."""
        self.work_s = 0.0
        """Processor time between requests."""
        self.asked_s = 0.0
        """Wall clock from requests to their answers."""
        self.untimed_s = 0.0
        """Processor time during UNTIMED_OPS, once it has settled."""
        self._rests: list[tuple[float, float]] = []
        self._loads: list[tuple[float, float]] = []

    def look_for_children(self) -> None:
        """Now and then: it costs a millisecond. Call it while the worker is to be idle."""
        self._book()
        self._pids = processes_of(self._worker)
        self._answered_at = cpu_seconds(self._pids)

    def asked(self, op: str = "") -> None:
        """Just before a request."""
        self._book()
        self._answered_at = None
        self._is_untimed = self.has_settled and op in UNTIMED_OPS
        if self._is_untimed:
            self._used_at_asking_s = cpu_seconds(self._pids)
        self._asked_at = time.perf_counter()

    def answered(self) -> None:
        """Just after its answer."""
        self.asked_s += time.perf_counter() - self._asked_at
        self._answered_at = cpu_seconds(self._pids)
        if self._is_untimed:
            self.untimed_s += max(self._answered_at - self._used_at_asking_s, 0.0)

    def _book(self) -> None:
        if self._answered_at is not None:
            # a process that went away takes its clock with it
            self.work_s += max(cpu_seconds(self._pids) - self._answered_at, 0.0)

    def came_to_rest(self, worker_s: float, reference_s: float) -> None:
        """How long a synchronisation took this worker after its idle time, and the reference after its own."""
        self._rests.append((worker_s, reference_s))

    def loaded(self, worker_s: float, reference_s: float) -> None:
        """How long each took to load the same inputs. In the order of the pairs, which alternates."""
        if self.has_settled:
            self._loads.append((worker_s, reference_s))

    def violation(self, reference: BackgroundWork) -> Violation | None:
        """The rule that was broken, if one was. reference: the watch of the other worker."""
        excess_s = self.work_s - reference.work_s
        if excess_s > max(MAX_SHARE * self.asked_s, MIN_WORK_S):
            return _violation(
                f"used {excess_s * 1e3:.0f} ms of processor time while eager was timed and nothing was asked of it, "
                f"beside {self.asked_s * 1e3:.0f} ms in which it was asked; finish all work before a call returns"
            )
        excess_s = self.untimed_s - reference.untimed_s
        limit_s = max(MAX_UNTIMED_EXCESS * reference.untimed_s, MAX_UNTIMED_SHARE * self.asked_s, MIN_UNTIMED_S)
        # a device is waited for with a spinning processor, longer by chance than by work
        if not self._has_device and excess_s > limit_s:
            return _violation(
                f"used {excess_s * 1e3:.0f} ms of processor time more than eager while inputs were loaded, beside "
                f"{self.asked_s * 1e3:.0f} ms in which it was asked; finish all work before a call returns"
            )
        if self._has_device and (late_s := self._too_late_s(self._rests)):
            return _violation(
                f"its device came to rest {late_s * 1e3:.1f} ms after it was to be idle; launch nothing that "
                "outlives a call"
            )
        if self._has_device and (late_s := self._too_late_s(self._loads)):
            return _violation(
                f"took {late_s * 1e3:.1f} ms longer than eager to load the same inputs; finish all work before a call "
                "returns"
            )
        return None

    def _too_late_s(self, pairs: Sequence[tuple[float, float]]) -> float | None:
        """By how much ours is later than theirs in three quarters of the pairs, if it is too much.

        A busy machine delays either side as often as the other.
        """
        if len(pairs) < MIN_BLOCKS:
            return None
        late_s = statistics.quantiles([ours - theirs for ours, theirs in pairs], n=4)[0]
        of_reference_s = statistics.median(theirs for _, theirs in pairs)
        limit_s = max(MAX_SHARE * self.asked_s / len(pairs), MIN_REST_S, MAX_UNTIMED_EXCESS * of_reference_s)
        return late_s if late_s > limit_s else None


def _violation(message: str) -> Violation:
    return Violation(rule="behaviour.background-work", layer="behaviour", message=message)
