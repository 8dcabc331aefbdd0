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
from eval_harness.judge.buffers import Buffers, output_slots, outputs_bytes
from eval_harness.judge.correctness import GraphFailure
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
FULL_DELIVERIES_PER_CLUSTER = 2
RING_BYTES = {"cpu": 192 << 20, "cuda": 1 << 30}
"""Inputs and outputs of a block on one side."""
DELIVERY_BYTES = 64 << 20
MAX_REPEATS = 2
"""Re-measurements of a graph that is too noisy before the verdict is UNSTABLE."""
NOISY_HALF_WIDTH = math.log(1.25)
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
    notes: list[str] = field(default_factory=list)


class PairedClock:
    """Times one graph. The candidate's and the reference's worker have it loaded; `candidate` may be any two workers
    of equal kind (A/A)."""

    def __init__(
        self, session: Session, graph: Graph, metas: Sequence[OutputMeta], *, candidate: Worker, reference: Worker
    ) -> None:
        self._session = session
        self._graph = graph
        self._metas = list(metas)
        self._candidate = candidate
        self._reference = reference
        self._generator = session.generator
        self._timeout_s = session.protocol.graph_timeout_s
        self._pool = InputPool(graph, session.seed(), session.protocol.inputs)
        self._first_correct_t = -10

    def measure(self, *, floor: float) -> TimedGraph:
        """Speedup with its interval. Raises GraphFailure (candidate) or UnstableError (machine)."""
        num_calls = self._calibrate()
        for attempt in range(MAX_REPEATS + 1):
            clusters = self._clusters(num_calls)
            estimate = estimate_speedup(clusters, num_calls=num_calls, floor=floor)
            if estimate.half_width <= NOISY_HALF_WIDTH:
                return TimedGraph(estimate, num_calls, self._first_correct_t)
            reference_blocks = [pair.reference_s for cluster in clusters for pair in cluster]
            if attempt == MAX_REPEATS and relative_iqr(reference_blocks) <= STEADY_REFERENCE_IQR:
                return self._lower_bound(estimate, num_calls)
        raise UnstableError(f"eager's own times vary by more than {STEADY_REFERENCE_IQR:.0%}; quieten the machine")

    def _lower_bound(self, estimate: SpeedupEstimate, num_calls: int) -> TimedGraph:
        bounded = SpeedupEstimate(
            speedup=estimate.interval[0],
            interval=estimate.interval,
            latency_us=estimate.latency_us,
            reference_latency_us=estimate.reference_latency_us,
            half_width=estimate.half_width,
        )
        note = "unsteady while eager is steady: the interval's lower bound counts"
        return TimedGraph(bounded, num_calls, self._first_correct_t, [note])

    def _calibrate(self) -> int:
        """Calls a block, from a few short blocks on both sides."""
        buffers = self._open(CALIBRATION_SETS)
        try:
            self._load(buffers, fresh=True)
            best: dict[int, float] = {}
            for worker in (self._candidate, self._reference):
                order = list(range(CALIBRATION_SETS))
                best[worker.pid] = min(self._block(worker, order) for _ in range(CALIBRATION_BLOCKS))
        finally:
            buffers.close()
        kind = self._session.bench.device.split(":")[0]
        set_bytes = self._pool.num_bytes + outputs_bytes(self._metas)
        return block_calls(
            best[self._candidate.pid] / CALIBRATION_SETS,
            best[self._reference.pid] / CALIBRATION_SETS,
            block_ms=self._session.protocol.block_ms,
            max_sets=max(1, min(RING_BYTES[kind] // max(set_bytes, 1), MAX_BLOCK_CALLS)),
        )

    def _clusters(self, num_calls: int) -> list[list[PairTiming]]:
        protocol = self._session.protocol
        buffers = self._open(num_calls)
        try:
            clusters = []
            for _ in range(protocol.num_clusters):
                clusters.append(self._cluster(buffers, num_calls, protocol.pairs_per_cluster))
            return clusters
        finally:
            buffers.close()

    def _cluster(self, buffers: Buffers, num_calls: int, num_pairs: int) -> list[PairTiming]:
        in_full = set(self._generator.sample(range(num_pairs), min(FULL_DELIVERIES_PER_CLUSTER, num_pairs)))
        blocks, deliveries_ours, deliveries_theirs = [], [], []
        for pair in range(num_pairs):
            self._load(buffers, fresh=pair == 0)
            if pair == 0:
                self._warm(num_calls)
            order = self._generator.sample(range(num_calls), num_calls)
            workers = [self._candidate, self._reference]
            seconds = {}
            for worker in workers if is_candidate_first(pair) else workers[::-1]:
                seconds[worker.pid] = self._block(worker, order)
            blocks.append((seconds[self._candidate.pid], seconds[self._reference.pid]))
            ours_s, theirs_s = self._deliver(buffers, num_calls, in_full=pair in in_full)
            if pair in in_full:
                deliveries_ours.append(ours_s)
                deliveries_theirs.append(theirs_s)
        deferred_s = deferred_work_s(deliveries_ours, deliveries_theirs)
        return [PairTiming(ours + deferred_s, theirs) for ours, theirs in blocks]

    def _open(self, num_sets: int) -> Buffers:
        call_bytes = max(outputs_bytes(self._metas), 1)
        buffers = Buffers(self._graph, num_sets, min(num_sets * call_bytes, max(DELIVERY_BYTES, call_bytes)))
        for worker in (self._candidate, self._reference):
            self._guarding(worker, partial(buffers.attach, worker, timeout_s=self._timeout_s))
        return buffers

    def _load(self, buffers: Buffers, *, fresh: bool) -> None:
        """Fresh content in every set, the same on both sides."""
        for views in buffers.views:
            self._pool.window_into(views, self._generator)
        for worker in (self._candidate, self._reference):
            self._ask(worker, "load_sets", **buffers.load_message(fresh=fresh))

    def _warm(self, num_calls: int) -> None:
        for worker in (self._candidate, self._reference):
            self._block(worker, list(range(min(WARM_CALLS, num_calls))))

    def _block(self, worker: Worker, order: list[int]) -> float:
        start = time.perf_counter()
        self._ask(worker, "run_block", order=order)
        return time.perf_counter() - start

    def _deliver(self, buffers: Buffers, num_calls: int, *, in_full: bool) -> tuple[float, float]:
        """Have outputs of the block that just ran delivered by both sides; seconds of each. Compares them."""
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
                mine = buffers.read_output(self._candidate, slot)
                right = buffers.read_output(self._reference, slot)
                level, _, message = first_correct_level(mine, right)
                if level is None:
                    raise GraphFailure(Outcome.WRONG_VALUES, f"in timed calls: {message}")
                self._first_correct_t = max(self._first_correct_t, level)
        return seconds[0], seconds[1]

    def _looked_at(self, by_call: list[list[Slot]]) -> list[list[Slot]]:
        """Comparing costs more than delivering: a few secretly chosen calls are enough, none knows which."""
        return self._generator.sample(by_call, min(len(by_call), 3))

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
