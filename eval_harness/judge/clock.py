"""The judge's clock: asks both workers for blocks of calls by message and times the answers.

    calibrate -> clusters of pairs of blocks, ABBA, until the time is spent -> interval from the paired log-ratios

Neither worker measures anything. Every call of a block has an input set of its own, in secret order; every pair of
blocks has fresh content; every cluster has newly placed buffers. All outputs of a block stay alive until the judge has
chosen, after "done", which to see (looks.py). Delivery is timed as well: work put off until then is added to the block.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from data.graph import Graph
from data.inputs import InputPool
from eval_harness.comparison import OutputMeta
from eval_harness.judge.background import BackgroundWork
from eval_harness.judge.buffers import InputWindows, outputs_bytes
from eval_harness.judge.correctness import GraphFailure
from eval_harness.judge.looks import PART_ELEMENTS, Looks, Pair, UnstableError
from eval_harness.judge.session import Session
from eval_harness.judge.workers import Worker
from eval_harness.machine import device_memory_bytes
from eval_harness.timing import (
    MAX_BLOCK_CALLS,
    PairTiming,
    SpeedupEstimate,
    block_calls,
    block_overhead_s,
    deferred_work_s,
    estimate_speedup,
    is_candidate_first,
    relative_iqr,
)
from eval_harness.verdict import STRICT_LEVEL, Outcome, Violation

CALIBRATION_SETS = 4
CALIBRATION_BLOCKS = 2
OVERHEAD_BLOCKS = 7
MAX_START_S = 2e-4
"""What the first call of a block may cost beyond the others, beside an empty block; an H200 showed 0.15 ms."""
SHORT_CALL_S = 5e-3
"""A call of eager's below which that is looked at."""
SHORTEST_BLOCK = 0.75
"""Of the calls that a block has at most; how many it has is drawn anew for each."""
GUARDED_SHARE = 0.7
"""Of the clusters, those with a call under the dispatch guard."""
RING_BYTES = {"cpu": 256 << 20, "cuda": 6 << 30}
"""Inputs and outputs of a block on one side, at most."""
RING_SHARE = 1 / 8
"""Of a GPU's memory, at most: both sides have a ring, and eager its temporaries beside it."""
LOOKED_AT_ELEMENTS = 1 << 20
"""Output elements compared a cluster, beside the block that is delivered in full."""
MAX_ROUNDS = 3
"""Rounds of clusters for a graph that is too noisy before the verdict is UNSTABLE."""
MAX_SUSPICIONS = 2
"""Measurements of a graph beside which the candidate seems to work, until it is a violation."""
STEADY_REFERENCE_IQR = 0.2
MIN_SECONDS = 1e-7


@dataclass
class TimedGraph:
    """What the clock found."""

    estimate: SpeedupEstimate
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
        level: int = STRICT_LEVEL,
    ) -> None:
        """guarded: now and then, secretly, one more call runs under the dispatch guard. level: the draws' outcome."""
        self._level = level
        self._session, self._graph, self._metas, self._guarded = session, graph, list(metas), guarded
        self._pair = Pair(candidate, reference, session.protocol.graph_timeout_s)
        self._generator = session.generator
        self._pool = InputPool(graph, session.seed(), session.protocol.inputs)
        self._overhead_s = 0.0
        self._num_pairs = 0
        self._watch()
        self._rests: dict[Worker, float] = {}

    def measure(self, *, floor: float) -> TimedGraph:
        """Speedup with its interval. Raises GraphFailure (candidate) or UnstableError (machine)."""
        for worker in self._pair.both:
            self._pair.ask(worker, "pin", cores=self._session.bench.cores)
        windows = InputWindows(self._graph, self._pool, Looks.exchange_bytes(self._metas, len(self._graph.arguments)))
        try:
            for worker in self._pair.both:
                self._pair.guarding(worker, partial(windows.attach, worker, timeout_s=self._pair.timeout_s))
                self._pair.ask(worker, "load_pool", **windows.pool_message())
            looks = Looks(self._session, self._pair, windows, self._metas, level=self._level)
            num_calls = self._calibrate(windows)
            timed = self._undisturbed(windows, looks, num_calls, floor)
        finally:
            windows.close()
        timed.first_correct_t, timed.message = looks.findings.first_correct_t, looks.findings.message
        return timed

    def _undisturbed(self, windows: InputWindows, looks: Looks, num_calls: int, floor: float) -> TimedGraph:
        """Timings beside which the candidate did no work of its own.

        In a short measurement one busy moment of the machine looks like work: such timings count for nothing and are
        taken anew, once. What shows again is work.
        """
        num_suspicions = 0
        while True:
            failure: GraphFailure | UnstableError | None = None
            try:
                timed = self._rounds(windows, looks, num_calls, floor)
            except (GraphFailure, UnstableError) as error:
                failure = error
            # before anything is said of a machine that does not hold still: the candidate may be why
            violation = self._background_violation()
            if violation is None:
                if failure is not None:
                    raise failure
                return timed
            num_suspicions += 1
            if num_suspicions == MAX_SUSPICIONS or isinstance(failure, GraphFailure):
                raise GraphFailure(Outcome.VIOLATION, violation.message, [violation])
            self._watch()

    def _watch(self) -> None:
        """From now on, what both do beside what they are asked."""
        has_device = self._session.bench.device != "cpu"
        self._pair.background = {worker: BackgroundWork(worker, has_device=has_device) for worker in self._pair.both}

    def _rounds(self, windows: InputWindows, looks: Looks, num_calls: int, floor: float) -> TimedGraph:
        """Rounds add up: more clusters narrow the interval where discarding a noisy round would not."""
        clusters: list[list[PairTiming]] = []
        for _ in range(MAX_ROUNDS):
            clusters += self._round(windows, looks, num_calls)
            estimate = estimate_speedup(_with_late_work(clusters, looks), floor=floor)
            if estimate.half_width <= math.log(self._session.protocol.max_noise):
                return TimedGraph(estimate)
        spread = relative_iqr([pair.reference_s / pair.num_calls for cluster in clusters for pair in cluster])
        if spread <= STEADY_REFERENCE_IQR:
            note = "unsteady while eager is steady: the interval's lower bound counts"
            bounded = replace(estimate, speedup=estimate.interval[0])
            return TimedGraph(bounded, notes=[note])
        raise UnstableError(
            f"eager's own block times vary by {spread:.0%} (interquartile range over median); "
            "something else uses this device: stop it, or evaluate again"
        )

    def _calibrate(self, windows: InputWindows) -> int:
        """Calls a block, from blocks on both sides; and what a block costs beside its calls.

        A few calls first, which are slow for what surrounds them, then as many as these suggest. What is beside the
        calls is measured on eager alone, whose figures no candidate makes.
        """
        set_bytes = self._pool.num_bytes + outputs_bytes(self._metas)
        max_sets = max(1, min(ring_bytes(self._session.bench.device) // max(set_bytes, 1), MAX_BLOCK_CALLS))
        num_calls = min(CALIBRATION_SETS, max_sets)
        for is_last in (False, True):
            self._load(windows, num_calls, fresh=True)
            if not is_last:
                self._overhead_s = empty_s = self._median_block_s([], OVERHEAD_BLOCKS)
            order = list(range(num_calls))
            best = [min(self._block(worker, order) for _ in range(CALIBRATION_BLOCKS)) for worker in self._pair.both]
            if is_last and best[1] / num_calls < SHORT_CALL_S:
                single_s = self._median_block_s([0], OVERHEAD_BLOCKS)
                self._overhead_s = block_overhead_s(empty_s, single_s, best[1], num_calls, max_start_s=MAX_START_S)
            per_call = [max(seconds - self._overhead_s, MIN_SECONDS) / num_calls for seconds in best]
            num_calls = block_calls(
                *per_call,
                block_ms=self._session.protocol.block_length_ms(self._session.bench.device),
                max_sets=max_sets,
            )
        return num_calls

    def _median_block_s(self, order: list[int], count: int) -> float:
        """Of eager's blocks in this order."""
        return statistics.median(self._block(self._pair.reference, order) for _ in range(count))

    def _round(self, windows: InputWindows, looks: Looks, num_calls: int) -> list[list[PairTiming]]:
        """Clusters until the protocol's time for a graph is spent. The end is fixed by time, not by what was measured:
        stopping when the interval looks narrow would make it too narrow."""
        protocol = self._session.protocol
        end = time.monotonic() + protocol.timing_s(self._session.bench.device)
        clusters: list[list[PairTiming]] = []
        while len(clusters) < protocol.num_clusters or time.monotonic() < end:
            clusters.append(self._cluster(windows, looks, num_calls, protocol.pairs_per_cluster))
        return clusters

    def _cluster(self, windows: InputWindows, looks: Looks, num_calls: int, num_pairs: int) -> list[PairTiming]:
        in_full = self._generator.randrange(num_pairs)
        looked_at = set(self._generator.sample(range(num_pairs), min(num_pairs, self._looks_per_cluster())))
        pairs = []
        if self._guarded and self._generator.random() < GUARDED_SHARE:
            # on content of its own: what a block has run, or will run, must not be seen twice
            self._load(windows, num_calls, fresh=False)
            looks.at_guarded_call(num_calls)
        self._load(windows, num_calls, fresh=True)
        for watch in self._pair.background.values():
            watch.look_for_children()
        for worker in self._pair.both:
            self._block(worker, list(range(num_calls)))
        for index in range(num_pairs):
            self._load(windows, num_calls, fresh=False)
            # none knows which call of a block is its last one
            count = self._session.sent.randint(math.ceil(SHORTEST_BLOCK * num_calls), num_calls)
            order = self._session.sent.sample(range(num_calls), count)
            pairs.append(self._time_pair(order))
            if index == in_full:
                looks.at_outputs(order, in_full=True)
                looks.at_inputs(order)
            elif index in looked_at:
                looks.at_outputs(order, in_full=False)
        for watch in self._pair.background.values():
            watch.has_settled = True
        return pairs

    def _time_pair(self, order: list[int]) -> PairTiming:
        workers = self._in_turn()
        self._num_pairs += 1
        seconds = {}
        for worker in workers:
            seconds[worker] = max(self._block(worker, order) - self._overhead_s, MIN_SECONDS)
        self._pair.background[self._pair.candidate].came_to_rest(*(self._rests[worker] for worker in self._pair.both))
        return PairTiming(seconds[self._pair.candidate], seconds[self._pair.reference], len(order))

    def _in_turn(self) -> tuple[Worker, Worker]:
        """The two workers in the order of the coming pair."""
        return self._pair.both if is_candidate_first(self._num_pairs) else self._pair.both[::-1]

    def _background_violation(self) -> Violation | None:
        """What the candidate did while eager was timed, if it broke a rule that is on."""
        ours, theirs = (self._pair.background[worker] for worker in self._pair.both)
        return ours.violation(theirs) if self._session.protocol.checks("behaviour") else None

    def _looks_per_cluster(self) -> int:
        """Blocks of a cluster from which an output is looked at: half, unless outputs are large. None knows which."""
        num_elements = sum(min(math.prod(meta.shape), PART_ELEMENTS) for meta in self._metas)
        return max(
            1, min(LOOKED_AT_ELEMENTS // max(num_elements, 1), (self._session.protocol.pairs_per_cluster + 1) // 2)
        )

    def _load(self, windows: InputWindows, num_calls: int, *, fresh: bool) -> None:
        """Fresh content in every set, the same on both sides; whoever runs first is loaded first.

        With one order for all pairs the side that was loaded last found its inputs in the caches.
        """
        message = windows.windows_message(num_calls, self._session.sent, fresh=fresh)
        seconds = {}
        for worker in self._in_turn():
            start = time.perf_counter()
            self._pair.ask(worker, "load_windows", **message)
            seconds[worker] = time.perf_counter() - start
        self._pair.background[self._pair.candidate].loaded(*(seconds[worker] for worker in self._pair.both))

    def _block(self, worker: Worker, order: list[int]) -> float:
        """Seconds of one block.

        "ready" runs none of the candidate's code: it brings this side's context onto the device. Without it a block
        pays for the switch from the other side when the other side was last, and not when it was not.
        """
        start = time.perf_counter()
        self._pair.ask(worker, "ready")
        self._rests[worker] = time.perf_counter() - start
        start = time.perf_counter()
        self._pair.ask(worker, "run_block", order=order)
        return time.perf_counter() - start


def ring_bytes(device: str) -> int:
    """What the input sets and outputs of a block may take on one side."""
    memory = device_memory_bytes(device)
    most = RING_BYTES[device.split(":")[0]]
    return most if memory is None else min(most, int(memory * RING_SHARE))


def _with_late_work(clusters: Sequence[Sequence[PairTiming]], looks: Looks) -> list[list[PairTiming]]:
    """Work that delivering showed to be put off, booked on every block of the candidate."""
    deliveries = looks.findings.deliveries_s
    late_s = deferred_work_s([ours for ours, _ in deliveries], [theirs for _, theirs in deliveries])
    return [
        [replace(pair, candidate_s=pair.candidate_s + late_s * pair.num_calls) for pair in pairs] for pairs in clusters
    ]
