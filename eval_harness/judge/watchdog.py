"""Watches host memory and the number of processes while a candidate runs, and ends one that takes too much.

TLDR: a cheap look (one small file) at most four times a second -> only if memory has fallen, a real measurement of the
candidate's processes -> over the limit: killed, OUT_OF_MEMORY. Where the machine runs short and the candidate holds
little, somebody else may be the cause: it is killed as "killed", which is tried again once (blame.py).

The cheap look costs some tens of microseconds, in a thread of the judge, not on the worker's cores where those are
pinned: it does not disturb what is timed. Not covered: memory of the device (blame.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from eval_harness.judge import memory
from eval_harness.process_tree import descendants

log = logging.getLogger(__name__)

_GIB = 1 << 30
FASTEST_GROWTH = 8 * _GIB
"""Bytes a second that a process may fill at most; sets how long a look may wait."""
LONGEST_WAIT_S, SHORTEST_WAIT_S = 0.25, 0.02
RESERVE_SHARE, MIN_RESERVE, MAX_RESERVE = 0.08, _GIB // 4, 4 * _GIB
"""What must stay available on the machine, so that the kernel does not choose whom to kill."""
MEASURED_DROP_SHARE = 0.25
"""A fall of available memory by this share of the limit is worth a measurement."""
SMALLEST_STEP_SHARE = 0.05
MAX_PROCESSES = 64
"""Below a candidate's own; compilers stay far below. Counted when the machine has as many more threads than before."""
GUILTY_SHARE = 0.5
"""Of the memory that went since the candidate started: who holds more is the cause."""


class MemoryWatchdog:
    """Watches one worker until stop().

    on_excess(kind, message) is called at most once, from the watchdog's thread, and must kill the worker. kind: "oom",
    "runtime" (too many processes), or "killed" (the machine is short, and not certainly by this worker).
    """

    def __init__(self, root: int, limit_share: float, on_excess: Callable[[str, str], None]) -> None:
        """root: the worker's process, with all below it. limit_share: of what is available now."""
        self._root = root
        self._on_excess = on_excess
        self._available_at_start = memory.available_bytes()
        self._tasks_at_start = memory.num_tasks()
        total = memory.total_bytes()
        reserve = min(max(int(RESERVE_SHARE * total), MIN_RESERVE), MAX_RESERVE)
        # a machine that is short already is not made short by this worker
        self._reserve = min(reserve, self._available_at_start // 2)
        self.limit = int(limit_share * self._available_at_start)
        """Bytes that the worker's processes may hold."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="memory-watchdog")
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=1.0)

    def _watch(self) -> None:
        wait_s = LONGEST_WAIT_S
        measure_at = MEASURED_DROP_SHARE * self.limit
        while not self._stopped.wait(wait_s):
            available = memory.available_bytes()
            dropped = self._available_at_start - available
            excess = None
            if dropped >= measure_at or available < self._reserve:
                excess, held = self._measure(dropped, available)
                # if all that goes from now on were the candidate's, it would be half way to its limit then
                measure_at = dropped + max((self.limit - held) / 2, SMALLEST_STEP_SHARE * self.limit)
            if excess is None and memory.num_tasks() - self._tasks_at_start > MAX_PROCESSES:
                excess = self._count_processes()
            if excess is not None:
                if not self._stopped.is_set():
                    log.warning("a worker is killed: %s", excess[1])
                    self._on_excess(*excess)
                return
            room = min(available - self._reserve, measure_at - dropped)
            wait_s = min(max(room / FASTEST_GROWTH, SHORTEST_WAIT_S), LONGEST_WAIT_S)

    def _measure(self, dropped: int, available: int) -> tuple[tuple[str, str] | None, int]:
        held = memory.held_bytes([self._root, *descendants(self._root)])
        if held > self.limit:
            return ("oom", f"held {_gib(held)} of host memory, over the limit of {_gib(self.limit)}"), held
        if available < self._reserve:
            text = f"only {_gib(available)} of host memory were left, {_gib(held)} were held by the candidate"
            return ("oom" if held > GUILTY_SHARE * dropped else "killed", text), held
        return None, held

    def _count_processes(self) -> tuple[str, str] | None:
        count = len(descendants(self._root))
        if count > MAX_PROCESSES:
            return "runtime", f"started {count} processes; a pass needs none"
        self._tasks_at_start = memory.num_tasks()  # they are somebody else's
        return None


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
