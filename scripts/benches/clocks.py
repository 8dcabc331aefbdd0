"""The same passes timed by the judge's clock and by clocks inside the process, as others use them.

For an honest pass they should agree on the speedup (loop: what the judge times, without the judge), or differ for a
known reason: per-call clocks synchronize after every call, which hides the overlap of launches with GPU work; do_bench
clears the L2 cache; the profiler sees GPU work alone. The passes are this repository's examples and the built-in
expert's; they run in confined processes as in an evaluation.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from eval_harness.errors import HarnessError
from scripts.arguments import check_device, say
from scripts.benches.examples import EXAMPLES, large_example, load_example
from scripts.benches.output import Target, machine_facts, render_table, report

HELP = "The same passes by the judge's clock, host medians, CUDA events, do_bench and the profiler."

CLOCKS = {"cpu": ("loop", "host"), "cuda": ("loop", "host", "events", "do_bench", "profiler")}
NUM_WARMUP, NUM_TRIALS = 20, 100
ROUNDS = 5
"""In-process clocks alternate between the sides this often; medians count."""
MAX_DISAGREEMENT = {"cpu": 0.06, "cuda": 0.03}
"""Median over graphs of |judge's speedup / loop's speedup - 1|: the interval's half-width for short graphs."""
LARGE_US = 200.0
"""Eager's time from which a graph counts as large: memory or arithmetic decides, not launches."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graphs", type=int, default=4, metavar="N", help="graphs a task at most; default: 4")


def run(args: argparse.Namespace) -> int:
    device = check_device(args.device)
    kind = device.split(":")[0]
    rows = measure(device, args.graphs)
    clocks = CLOCKS[kind]
    table = render_table(
        ("pass", "graph", "eager us", "judge", "low", "high", *clocks),
        [[row["pass"], row["graph"][-28:], row["eager_us"], row["judge"], *row["interval"], *[row[c] for c in clocks]]
         for row in rows],
    )  # fmt: skip
    calls = render_table(
        ("pass", "graph", "side", "judge", *clocks),
        [[row["pass"], row["graph"][-28:], side, row[f"{side}_us"], *[row["us"][c][side] for c in clocks]]
         for row in rows for side in ("eager", "pass")],
    )  # fmt: skip
    targets = [
        Target(f"{name}: median |judge's speedup / in-process loop's - 1|", apart, MAX_DISAGREEMENT[kind], "at most")
        for name, apart in disagreement(rows).items()
    ]
    body = f"speedup (eager time over pass time) by clock\n{table}\n\nmicroseconds a call by clock\n{calls}"
    return report(args, "clocks", body=body, figures={"rows": rows}, targets=targets, facts=machine_facts(device))


def disagreement(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Median of |judge / loop - 1| over graphs below and from LARGE_US of eager; None where none was measured."""
    sizes = {
        f"below {LARGE_US:.0f} us": [row for row in rows if row["eager_us"] < LARGE_US],
        f"from {LARGE_US:.0f} us": [row for row in rows if row["eager_us"] >= LARGE_US],
    }
    return {
        name: statistics.median(abs(row["judge"] / row["loop"] - 1) for row in chosen) if chosen else None
        for name, chosen in sizes.items()
    }


def measure(device: str, max_graphs: int) -> list[dict[str, Any]]:
    """A row a graph: the speedup by every clock. Raises HarnessError, UserError."""
    from data.passbench import load_task
    from eval_harness.judge.session import Bench

    kind = device.split(":")[0]
    bench = Bench.open(device)
    rows = []
    try:
        for folder, reference in EXAMPLES[kind].items():
            graphs = load_task(reference).graphs[:max_graphs]
            rows += _one_pass(bench, folder, load_example(folder), graphs)
        name, candidate, task = large_example(kind)
        rows += _one_pass(bench, name, candidate, task.graphs)
    finally:
        bench.close()
    return rows


def _one_pass(bench: Any, name: str, candidate: Any, graphs: Any) -> list[dict[str, Any]]:
    from eval_harness.judge.correctness import GraphFailure, check_correctness, reference_metas
    from eval_harness.judge.device_lock import exclusive_use
    from eval_harness.judge.graph_loading import load_rewritten
    from eval_harness.judge.graph_timing import measure_speedup
    from eval_harness.judge.session import Session
    from eval_harness.presets import load_protocol
    from eval_harness.retries import draw_seed
    from eval_harness.rewriting import rewrite

    session = Session(bench, load_protocol("strict"), draw_seed())
    rows = []
    try:
        session.load_candidate(candidate)
        for graph in graphs:
            say(f"{name}: {graph.name}")
            traced = bench.trace(graph)
            rewritten = rewrite(traced, session.rules)
            if not rewritten.num_matches:
                continue
            with exclusive_use(bench.device):
                load_rewritten(session, traced, rewritten)
                metas = reference_metas(session, graph)
                check_correctness(session, graph, metas, guarded=False)
                fields: dict[str, Any] = {}
                measure_speedup(session, graph, metas, -5, fields, guarded=False)
                if fields.get("speedup") is None:
                    say(f"{graph.name}: {fields.get('message')}")
                    continue
                rows.append(
                    {"pass": name, "graph": graph.name, "eager_us": fields["reference_latency_us"],
                     "pass_us": fields["latency_us"],
                     "judge": fields["speedup"], "interval": list(fields["speedup_interval"]),
                     **_in_process(session, bench.device)}
                )  # fmt: skip
    except GraphFailure as failure:
        raise HarnessError(f"{name}: the example no longer runs: {failure.message}") from None
    finally:
        session.close()
    return rows


def _in_process(session: Any, device: str) -> dict[str, Any]:
    """Speedup by each clock, and "us": clock -> microseconds a call of "eager" and "pass".

    Medians of rounds that alternate between the sides, on the last block's input sets.
    """
    speedups: dict[str, Any] = {"us": {}}
    for how in CLOCKS[device.split(":")[0]]:
        times: tuple[list[float], list[float]] = ([], [])
        num_rounds = 1 if how in ("do_bench", "profiler") else ROUNDS
        for _ in range(num_rounds):
            for worker, mine in zip((session.candidate, session.reference), times, strict=True):
                fields = {"how": how, "num_warmup": NUM_WARMUP, "num_trials": NUM_TRIALS}
                mine.append(float(worker.ask("time_in_process", timeout_s=120.0, **fields)["us"]))
        ours, eager = statistics.median(times[0]), statistics.median(times[1])
        speedups["us"][how] = {"eager": eager, "pass": ours}
        speedups[how] = eager / max(ours, 1e-9)
    return speedups
