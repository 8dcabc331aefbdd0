"""Timing of one graph: the machine's A/A floor, the protocol's clock, GPU time beside it, eager time by operator."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

from data.graph import Graph
from eval_harness.comparison import OutputMeta
from eval_harness.errors import ReferenceFailedError
from eval_harness.judge.clock import PairedClock
from eval_harness.judge.correctness import GraphFailure
from eval_harness.judge.graph_loading import eager_request
from eval_harness.judge.looks import UnstableError
from eval_harness.judge.session import Session
from eval_harness.judge.workers import WorkerFailure
from eval_harness.timing import relative_iqr
from eval_harness.verdict import Outcome

log = logging.getLogger(__name__)

UPSTREAM_MAX_IQR = 0.2
UPSTREAM_MAX_REPEATS = 3
NODE_REPEATS = 15
GPU_TIME_REPEATS = 20
KERNEL_COUNT_REPEATS = 2
"""Where no GPU time is asked for, the count of kernels alone, which hardly varies."""
MIN_FLOOR = {"cpu": 0.04, "cuda": 0.009}
"""What remains between two equal processes and no interval of one pair can show: where a process's memory lies, for
one, stays with it. Set by `passwright bench noise`, so that the intervals hold 1 as often as they say."""
DEFAULT_FLOOR = 0.05
"""A/A deviation assumed (as a log ratio) when it could not be measured."""


def measure_speedup(
    session: Session,
    graph: Graph,
    metas: Sequence[OutputMeta],
    first_correct_t: int,
    fields: dict[str, Any],
    *,
    guarded: bool,
) -> int:
    """Fill speedup, interval and latencies into fields; returns first_correct_t with the timed calls' outputs counted.

    An unsteady machine makes the graph UNSTABLE. Raises GraphFailure.
    """
    if session.protocol.clock == "upstream":
        _upstream_clock(session, graph, fields)
        return first_correct_t
    try:
        floor = aa_floor(session, graph, metas)
        clock = PairedClock(
            session,
            graph,
            metas,
            candidate=session.candidate,
            reference=session.reference,
            guarded=guarded,
            level=first_correct_t,
        )
        timed = clock.measure(floor=floor)
    except UnstableError as error:
        fields |= {"outcome": Outcome.UNSTABLE, "message": f"timing: {error}"}
        return first_correct_t
    estimate = timed.estimate
    fields |= {
        "speedup": estimate.speedup,
        "speedup_interval": estimate.interval,
        "latency_us": estimate.latency_us,
        "reference_latency_us": estimate.reference_latency_us,
    }
    if session.bench.device.startswith("cuda"):
        fields |= _gpu_facts(session, graph)
    if timed.notes:
        fields["message"] = "; ".join(timed.notes)
    if timed.first_correct_t > first_correct_t and timed.message:  # none within the strict level
        fields["message"] = f"values: in timed calls: {timed.message}"
    return max(first_correct_t, timed.first_correct_t)


def aa_floor(session: Session, graph: Graph, metas: Sequence[OutputMeta]) -> float:
    """The machine's A/A deviation as a log ratio; measured at the first timing of this judge, on that graph."""
    if session.bench.aa_floor is None:
        start = time.monotonic()
        session.bench.aa_floor = _measure_aa(session, graph, metas)
        session.extend(time.monotonic() - start)
    return DEFAULT_FLOOR if session.bench.aa_floor is None else session.bench.aa_floor


def _measure_aa(session: Session, graph: Graph, metas: Sequence[OutputMeta]) -> float | None:
    """What differs between two equal processes as a log ratio: eager against eager, beyond what the interval says.

    None if the machine did not hold still; the next timing tries again.
    """
    (twin,) = session.bench.fork("reference")
    try:
        request = eager_request(session.bench.trace(graph))
        twin.ask("load_graph", timeout_s=session.protocol.graph_timeout_s, apply="direct", **request)
        clock = PairedClock(session, graph, metas, candidate=twin, reference=session.reference)
        # it is kept for every candidate after this one: none may work beside it
        with session.candidate.held_still():
            estimate = clock.measure(floor=0.0).estimate
    except (UnstableError, GraphFailure, WorkerFailure, ReferenceFailedError) as error:
        log.warning("the A/A floor could not be measured (%s); %.2f is assumed", error, DEFAULT_FLOOR)
        return None
    finally:
        twin.kill()
    deviation = abs(math.log(estimate.speedup))
    return max(MIN_FLOOR[session.bench.device.split(":")[0]], deviation if deviation > estimate.half_width else 0.0)


def _gpu_facts(session: Session, graph: Graph) -> dict[str, float]:
    """gpu_speedup (reference GPU time over the candidate's) where it is asked for, and the kernels a call of both.

    Empty where the profiler sees no kernels.
    """
    known, with_time = session.bench.num_kernels, session.protocol.gpu_time
    repeats = GPU_TIME_REPEATS if with_time else KERNEL_COUNT_REPEATS
    facts: dict[str, float] = {}
    times_us = []
    for worker, name in ((session.candidate, "num_kernels"), (session.reference, "reference_num_kernels")):
        if name == "reference_num_kernels" and not with_time and graph.content_hash in known:
            facts[name] = known[graph.content_hash]
            break
        try:
            answer = worker.ask("gpu_time", timeout_s=session.protocol.graph_timeout_s, repeats=repeats)
        except WorkerFailure as failure:
            log.warning("no GPU time: %s", failure.message)
            return {}
        times_us.append(float(answer["gpu_us"]))
        facts[name] = float(answer["launches"])
    known[graph.content_hash] = facts["reference_num_kernels"]
    if with_time and min(times_us) > 0:
        facts["gpu_speedup"] = times_us[1] / times_us[0]
    return facts if min(facts["num_kernels"], facts["reference_num_kernels"]) > 0 else {}


def _upstream_clock(session: Session, graph: Graph, fields: dict[str, Any]) -> None:
    """20 warm-ups and 100 trials timed per call inside each process, re-measured while IQR/median > 20%."""
    protocol = session.protocol
    medians_us = []
    for worker in (session.candidate, session.reference):
        for _ in range(UPSTREAM_MAX_REPEATS):
            try:
                answer = worker.ask(
                    "run_trials",
                    timeout_s=protocol.graph_timeout_s,
                    num_warmup=protocol.num_warmup,
                    num_trials=protocol.num_trials,
                )
            except WorkerFailure as failure:
                raise GraphFailure.of_worker(failure, "timed calls") from None
            trials_us = [float(value) for value in answer["trials_us"]]
            if relative_iqr(trials_us) <= UPSTREAM_MAX_IQR:
                break
        medians_us.append(statistics.median(trials_us))
    fields |= {
        "speedup": medians_us[1] / medians_us[0],
        "latency_us": medians_us[0],
        "reference_latency_us": medians_us[1],
    }


def node_seconds(session: Session, graph: Graph) -> dict[str, float]:
    """Eager seconds of each of the graph's operators, measured once a graph in the reference process."""
    known = session.bench.node_seconds
    if graph.content_hash not in known:
        with session.candidate.held_still():
            answer = session.ask_reference("time_nodes", set=0, repeats=NODE_REPEATS)
        known[graph.content_hash] = {str(node): float(seconds) for node, seconds in answer["seconds"].items()}
    return known[graph.content_hash]
