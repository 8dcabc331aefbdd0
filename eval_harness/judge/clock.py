"""The judge's clock: asks both workers for blocks of calls by message and times the answers (DESIGN section 4).

Neither worker measures anything. Every call of a block has an input set of its own, in secret order; every pair of
blocks has fresh content; every cluster has newly placed buffers. All outputs of a block stay alive until the judge has
chosen, after "done", which to see. Delivery is timed as well: work put off until then is added to the block.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from data.graph import Graph
from data.inputs import InputPool
from eval_harness.comparison import OutputMeta, first_correct_level
from eval_harness.judge.buffers import InputWindows, output_slots, outputs_bytes
from eval_harness.judge.correctness import GraphFailure, check_guard, compare_inputs
from eval_harness.judge.session import Session
from eval_harness.judge.workers import Worker, WorkerFailure
from eval_harness.tensor_exchange import Slot
from eval_harness.timing import (
    MAX_BLOCK_CALLS,
    PairTiming,
    SpeedupEstimate,
    block_calls,
    deferred_work_s,
    estimate_speedup,
    is_candidate_first,
    relative_iqr,
)
from eval_harness.verdict import Outcome

CALIBRATION_SETS = 4
CALIBRATION_BLOCKS = 3
WARM_CALLS = 8
RING_BYTES = {"cpu": 256 << 20, "cuda": 6 << 30}
"""Inputs and outputs of a block on one side."""
DELIVERY_BYTES = 32 << 20
SLACK_BYTES = 1 << 16
"""Alignment of one set's inputs when they are delivered back."""
LOOKED_AT_ELEMENTS = 1 << 20
"""Output elements compared a cluster, beside the block that is delivered in full."""
MAX_ROUNDS = 3
"""Rounds of clusters for a graph that is too noisy before the verdict is UNSTABLE."""
STEADY_REFERENCE_IQR = 0.2


class UnstableError(Exception):
    """Eager itself does not hold still: nothing can be said of this graph now."""


@dataclass
class TimedGraph:
    """What the clock found."""

    estimate: SpeedupEstimate
    num_calls: int
    first_correct_t: int = -10
    """Over the outputs that were looked at."""
    message: str = ""
    """The worst of these outputs, if it is beyond the strict level."""
    notes: list[str] = field(default_factory=list)


class PairedClock:
    """Times one graph. The candidate's and the reference's worker have it loaded; `candidate` may be any two workers
    of equal kind (A/A)."""

    def __init__(
        self,
        session: Session,
        graph: Graph,
        metas: Sequence[OutputMeta],
        *,
        candidate: Worker,
        reference: Worker,
        guarded: bool = False,
    ) -> None:
        """guarded: now and then, secretly, one more call runs under the dispatch guard."""
        self._session = session
        self._graph = graph
        self._metas = list(metas)
        self._candidate = candidate
        self._reference = reference
        self._generator = session.generator
        self._timeout_s = session.protocol.graph_timeout_s
        self._pool = InputPool(graph, session.seed(), session.protocol.inputs)
        self._first_correct_t = -10
        self._message = ""
        self._guarded = guarded
        self._deliveries: list[tuple[float, float]] = []
        self._kind = session.bench.device.split(":")[0]

    def measure(self, *, floor: float) -> TimedGraph:
        """Speedup with its interval. Raises GraphFailure (candidate) or UnstableError (machine)."""
        for worker in (self._candidate, self._reference):
            self._ask(worker, "pin", cores=self._session.bench.cores)
        num_calls = self._calibrate()
        clusters: list[list[PairTiming]] = []
        for _ in range(MAX_ROUNDS):
            # rounds add up: more clusters narrow the interval where discarding a noisy round would not
            clusters += self._round(num_calls)
            estimate = estimate_speedup(clusters, num_calls=num_calls, floor=floor)
            if estimate.half_width <= math.log(self._session.protocol.max_noise):
                return TimedGraph(estimate, num_calls, self._first_correct_t, self._message)
        reference_blocks = [pair.reference_s for cluster in clusters for pair in cluster]
        if relative_iqr(reference_blocks) <= STEADY_REFERENCE_IQR:
            return self._lower_bound(estimate, num_calls)
        raise UnstableError(
            f"eager's own block times vary by {relative_iqr(reference_blocks):.0%} (interquartile range over median); "
            "something else uses this device: stop it, or evaluate again"
        )

    def _lower_bound(self, estimate: SpeedupEstimate, num_calls: int) -> TimedGraph:
        bounded = SpeedupEstimate(
            speedup=estimate.interval[0],
            interval=estimate.interval,
            latency_us=estimate.latency_us,
            reference_latency_us=estimate.reference_latency_us,
            half_width=estimate.half_width,
        )
        note = "unsteady while eager is steady: the interval's lower bound counts"
        return TimedGraph(bounded, num_calls, self._first_correct_t, self._message, [note])

    def _calibrate(self) -> int:
        """Calls a block, from a few short blocks on both sides."""
        windows = self._open(CALIBRATION_SETS)
        try:
            self._load(windows, CALIBRATION_SETS, fresh=True)
            best: dict[int, float] = {}
            for worker in (self._candidate, self._reference):
                order = list(range(CALIBRATION_SETS))
                best[worker.pid] = min(self._block(worker, order) for _ in range(CALIBRATION_BLOCKS))
        finally:
            windows.close()
        set_bytes = self._pool.num_bytes + outputs_bytes(self._metas)
        return block_calls(
            best[self._candidate.pid] / CALIBRATION_SETS,
            best[self._reference.pid] / CALIBRATION_SETS,
            block_ms=self._session.protocol.block_ms,
            max_sets=max(1, min(RING_BYTES[self._kind] // max(set_bytes, 1), MAX_BLOCK_CALLS)),
        )

    def _round(self, num_calls: int) -> list[list[PairTiming]]:
        """One cluster after another, with late work booked on every block of the candidate."""
        protocol = self._session.protocol
        windows = self._open(num_calls)
        self._deliveries = []
        try:
            clusters = [
                self._cluster(windows, num_calls, protocol.pairs_per_cluster) for _ in range(protocol.num_clusters)
            ]
        finally:
            windows.close()
        deferred_s = deferred_work_s([ours for ours, _ in self._deliveries], [theirs for _, theirs in self._deliveries])
        return [[PairTiming(pair.candidate_s + deferred_s, pair.reference_s) for pair in pairs] for pairs in clusters]

    def _cluster(self, windows: InputWindows, num_calls: int, num_pairs: int) -> list[PairTiming]:
        in_full = self._generator.randrange(num_pairs)
        looked_at = set(self._generator.sample(range(num_pairs), min(num_pairs, self._looks_per_cluster())))
        pairs = []
        for index in range(num_pairs):
            self._load(windows, num_calls, fresh=index == 0)
            if index == 0:
                self._warm(num_calls)
            order = self._generator.sample(range(num_calls), num_calls)
            workers = [self._candidate, self._reference]
            seconds = {}
            for worker in workers if is_candidate_first(index) else workers[::-1]:
                seconds[worker.pid] = self._block(worker, order)
            pairs.append(PairTiming(seconds[self._candidate.pid], seconds[self._reference.pid]))
            if index == in_full:
                self._deliveries.append(self._deliver(windows, num_calls, in_full=True))
                self._check_inputs(windows, num_calls)
                self._check_guarded_call(num_calls)
            elif index in looked_at:
                self._deliver(windows, num_calls, in_full=False)
        return pairs

    def _looks_per_cluster(self) -> int:
        """Blocks of a cluster from which an output is looked at: all, unless outputs are large. None knows which."""
        num_elements = sum(math.prod(meta.shape) for meta in self._metas)
        return max(1, LOOKED_AT_ELEMENTS // max(num_elements, 1))

    def _open(self, num_calls: int) -> InputWindows:
        call_bytes = max(outputs_bytes(self._metas), 1)
        size = max(min(num_calls * call_bytes, max(DELIVERY_BYTES, call_bytes)), self._pool.num_bytes + SLACK_BYTES)
        windows = InputWindows(self._graph, self._pool, size)
        for worker in (self._candidate, self._reference):
            self._guarding(worker, partial(windows.attach, worker, timeout_s=self._timeout_s))
            self._ask(worker, "load_pool", **windows.pool_message())
        return windows

    def _load(self, windows: InputWindows, num_calls: int, *, fresh: bool) -> None:
        """Fresh content in every set, the same on both sides."""
        message = windows.windows_message(num_calls, self._generator, fresh=fresh)
        for worker in (self._candidate, self._reference):
            self._ask(worker, "load_windows", **message)

    def _warm(self, num_calls: int) -> None:
        for worker in (self._candidate, self._reference):
            self._block(worker, list(range(min(WARM_CALLS, num_calls))))

    def _block(self, worker: Worker, order: list[int]) -> float:
        start = time.perf_counter()
        self._ask(worker, "run_block", order=order)
        return time.perf_counter() - start

    def _deliver(self, windows: InputWindows, num_calls: int, *, in_full: bool) -> tuple[float, float]:
        """Have outputs of the block that just ran delivered by both sides, and compare them.

        Returns what delivering the whole block would take each side, in seconds.
        """
        most = max(1, DELIVERY_BYTES // max(outputs_bytes(self._metas), 1))
        count = min(num_calls, most) if in_full else 1
        positions = self._generator.sample(range(num_calls), count)
        items, by_call = output_slots(self._metas, positions)
        seconds = []
        for worker in (self._candidate, self._reference):
            start = time.perf_counter()
            self._ask(worker, "deliver", items=items)
            seconds.append(time.perf_counter() - start)
        for slots in self._looked_at(by_call):
            for slot in slots:
                mine = windows.read_output(self._candidate, slot)
                right = windows.read_output(self._reference, slot)
                level, _, message = first_correct_level(mine, right)
                if level is None:
                    raise GraphFailure(Outcome.WRONG_VALUES, f"in timed calls: {message}")
                if level > self._first_correct_t:
                    self._first_correct_t, self._message = level, message
        whole_block = num_calls / count
        return seconds[0] * whole_block, seconds[1] * whole_block

    def _check_inputs(self, windows: InputWindows, num_calls: int) -> None:
        """One set after the block: as the reference left it."""
        index = self._generator.randrange(num_calls)
        slots = windows.set_slots()
        for worker in (self._candidate, self._reference):
            self._ask(worker, "deliver_inputs", set=index, slots=[slot.to_json() for slot in slots])
        ours, theirs = ([windows.read_bytes(worker, slot) for slot in slots] for worker in
                        (self._candidate, self._reference))
        compare_inputs(self._graph, ours, theirs)

    def _check_guarded_call(self, num_calls: int) -> None:
        """One more call of the candidate, under the guard; by its number it is a timed call like any other."""
        if not self._guarded:
            return
        fields: dict[str, Any] = {"set": self._generator.randrange(num_calls), "guard": True, "poison_bytes": []}
        try:
            answer = self._candidate.ask("call", timeout_s=self._timeout_s, **fields)
        except WorkerFailure as failure:
            raise GraphFailure.of_worker(failure, "timed calls") from None
        check_guard(answer["guard"])

    def _looked_at(self, by_call: list[list[Slot]]) -> list[list[Slot]]:
        """Comparing costs more than delivering: a few secretly chosen calls are enough, none knows which."""
        num_elements = sum(math.prod(slot.shape) for slot in by_call[0])
        most = max(1, min(3, LOOKED_AT_ELEMENTS // max(num_elements, 1)))
        return self._generator.sample(by_call, min(len(by_call), most))

    def _ask(self, worker: Worker, op: str, **fields: Any) -> None:
        self._guarding(worker, partial(worker.ask, op, timeout_s=self._timeout_s, **fields))

    def _guarding(self, worker: Worker, action: Callable[[], object]) -> None:
        """A failing reference is ours; a failing candidate is its own."""
        try:
            action()
        except WorkerFailure as failure:
            if worker is self._reference:
                raise UnstableError(f"eager failed while it was timed: {failure.message}") from None
            raise GraphFailure.of_worker(failure, "timed calls") from None
