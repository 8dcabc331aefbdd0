"""How far from 1 the judge's clock says that equal sides are (A/A), and whether its intervals say so.

Each run is what an evaluation does with one graph: two confined processes run eager, the judge times them by the
protocol, the interval holds the machine's A/A floor. A pair of processes measures every graph once by each protocol and
is replaced: a bias that stays with a pair of processes has as many chances as in use.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from typing import Any

from data.graph import Graph
from eval_harness.errors import HarnessError
from scripts.arguments import check_device, say
from scripts.benches.corpus import make_graph
from scripts.benches.output import Target, machine_facts, render_table, report

HELP = "A/A: eager against eager by the judge's clock; spread, interval half-widths, coverage."

_CHAIN = [f"tmp_{i + 1} = torch.nn.functional.silu(tmp_{i}) + in_1" for i in range(12)]
_SMALL = ["tmp_0 = in_0 + in_1", "tmp_1 = torch.relu(tmp_0)", "tmp_2 = tmp_1 * in_1", "return (tmp_2,)"]
_LONG = ["tmp_0 = in_0 + in_1", *_CHAIN, "return (tmp_12,)"]
GRAPHS = {
    "cpu": {"small": (_SMALL, (64, 256)), "middle": (_SMALL, (128, 512)), "large": (_SMALL, (1024, 1024)),
            "long": (_LONG, (256, 512))},
    "cuda": {"small": (_SMALL, (64, 256)), "middle": (_SMALL, (1024, 1024)), "long": (_LONG, (512, 1024)),
             "large": (_LONG, (4096, 2048))},
}  # fmt: skip
"""Name -> operators, shape of in_0. small: starting operators decides; large: moving memory does."""
LONG_US = 200.0
MIN_COVERAGE = 0.93
MAX_HALF_WIDTH = {
    ("cuda", "strict"): (0.03, 0.01), ("cuda", "reward"): (0.05, 0.05),
    ("cpu", "strict"): (0.06, 0.03), ("cpu", "reward"): (0.10, 0.10),
}  # fmt: skip
"""Median half-width below LONG_US and over it."""
MAX_SECONDS = {("cuda", "strict"): 2.0, ("cuda", "reward"): 0.5, ("cpu", "strict"): 5.0, ("cpu", "reward"): 5.0}


@dataclasses.dataclass(frozen=True)
class Run:
    """One A/A measurement of one graph."""

    graph: str
    protocol: str
    pair: int
    latency_us: float
    log_ratio: float
    low: float
    high: float
    seconds: float

    @property
    def covers(self) -> bool:
        return self.low <= 1.0 <= self.high

    @property
    def half_width(self) -> float:
        return math.sqrt(self.high / self.low) - 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="measurements a protocol; default: 200")
    parser.add_argument("--protocols", default="strict,reward", metavar="NAMES", help="default: strict,reward")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="end after this time with what there is")


def run(args: argparse.Namespace) -> int:
    device = check_device(args.device)
    protocols = [name for name in args.protocols.split(",") if name]
    runs, unstable, floor = measure(device, protocols, args.runs, args.max_seconds)
    kind = device.split(":")[0]
    rows, targets = [], []
    for protocol in protocols:
        mine = [run for run in runs if run.protocol == protocol]
        for graph in GRAPHS[kind]:
            of_graph = [run for run in mine if run.graph == graph]
            rows.append(_row(protocol, graph, of_graph, unstable.get((protocol, graph), 0)))
        targets += _targets(kind, protocol, mine)
    table = render_table(
        (
            "protocol",
            "graph",
            "runs",
            "us",
            "covers 1",
            "half-width",
            "|dev| p50",
            "|dev| p95",
            "bias",
            "s",
            "unstable",
        ),
        rows,
    )
    record = {
        "runs": [dataclasses.asdict(run) for run in runs], "unstable": {"/".join(k): v for k, v in unstable.items()},
        "aa_floor_log_ratio": floor,
    }  # fmt: skip
    return report(args, "noise", body=table, figures=record, targets=targets, facts=machine_facts(device))


def measure(
    device: str, protocols: list[str], num_runs: int, max_seconds: float | None
) -> tuple[list[Run], dict[tuple[str, str], int], float | None]:
    """All runs, the number of unstable ones by (protocol, graph), and the machine's floor. Raises HarnessError."""
    from eval_harness.judge.session import Bench

    bench = Bench.open(device)
    runs: list[Run] = []
    unstable: dict[tuple[str, str], int] = {}
    graphs = [_graph(name, *of) for name, of in GRAPHS[device.split(":")[0]].items()]
    num_pairs = math.ceil(num_runs / len(graphs))
    started = time.monotonic()
    try:
        for pair in range(num_pairs):
            if max_seconds is not None and time.monotonic() - started > max_seconds:
                break
            say(f"pair of processes {pair + 1}/{num_pairs}")
            runs += _one_pair(bench, protocols, graphs, pair, unstable)
    finally:
        bench.close()
    return runs, unstable, bench.aa_floor


def _one_pair(
    bench: Any, protocols: list[str], graphs: list[Graph], pair: int, unstable: dict[tuple[str, str], int]
) -> list[Run]:
    from eval_harness.judge.clock import PairedClock
    from eval_harness.judge.correctness import GraphFailure, reference_metas
    from eval_harness.judge.device_lock import exclusive_use
    from eval_harness.judge.graph_loading import load_baseline
    from eval_harness.judge.graph_timing import aa_floor
    from eval_harness.judge.looks import UnstableError
    from eval_harness.judge.session import EAGER, Session
    from eval_harness.presets import load_protocol
    from eval_harness.retries import draw_seed

    runs = []
    session = Session(bench, load_protocol(protocols[0]), draw_seed())
    try:
        for graph in graphs:
            load_baseline(session, bench.trace(graph), EAGER)
            with exclusive_use(bench.device):
                metas = reference_metas(session, graph)
                for protocol in protocols:
                    session.protocol = load_protocol(protocol)
                    floor = aa_floor(session, graph, metas)
                    start = time.monotonic()
                    try:
                        clock = PairedClock(
                            session, graph, metas, candidate=session.candidate, reference=session.reference
                        )
                        estimate = clock.measure(floor=floor).estimate
                    except UnstableError:
                        unstable[protocol, graph.name] = unstable.get((protocol, graph.name), 0) + 1
                        continue
                    runs.append(
                        Run(graph.name, protocol, pair, estimate.reference_latency_us, math.log(estimate.speedup),
                            *estimate.interval, time.monotonic() - start)
                    )  # fmt: skip
    except GraphFailure as failure:
        raise HarnessError(f"eager against eager failed on {bench.device}: {failure.message}") from None
    finally:
        session.close()
    return runs


def _graph(name: str, body: list[str], shape: tuple[int, int]) -> Graph:
    inputs = {"in_0": f"float32[{shape[0]}, {shape[1]}]", "in_1": f"float32[{shape[1]}]"}
    return make_graph(name, body=body, inputs=inputs)


def _row(protocol: str, graph: str, runs: list[Run], num_unstable: int) -> list[object]:
    if not runs:
        return [protocol, graph, 0, *[None] * 7, num_unstable]
    deviations = sorted(abs(run.log_ratio) for run in runs)
    return [
        protocol, graph, len(runs), statistics.median(run.latency_us for run in runs),
        sum(run.covers for run in runs) / len(runs), statistics.median(run.half_width for run in runs),
        statistics.median(deviations), deviations[min(len(runs) - 1, int(0.95 * len(runs)))],
        statistics.fmean(run.log_ratio for run in runs), statistics.median(run.seconds for run in runs), num_unstable,
    ]  # fmt: skip


def _targets(kind: str, protocol: str, runs: list[Run]) -> list[Target]:
    if (kind, protocol) not in MAX_HALF_WIDTH or not runs:
        return []
    covered = sum(run.covers for run in runs) / len(runs)
    targets = [Target(f"{protocol}: share of A/A intervals that cover 1", covered, MIN_COVERAGE, "at least")]
    by_graph: dict[str, list[Run]] = {}
    for run in runs:
        by_graph.setdefault(run.graph, []).append(run)
    for name, mine in by_graph.items():
        is_long = statistics.median(run.latency_us for run in mine) > LONG_US
        bound = MAX_HALF_WIDTH[kind, protocol][is_long]
        width = statistics.median(run.half_width for run in mine)
        targets.append(Target(f"{protocol}: median half-width, {name}", width, bound, "at most"))
        seconds = statistics.median(run.seconds for run in mine)
        targets.append(Target(f"{protocol}: seconds, {name}", seconds, MAX_SECONDS[kind, protocol], "at most"))
    return targets
