"""`passwright bench collect`: do many attempts, which wait for a slow teacher, keep the evaluator busy?

A real collection: the openai policy over HTTP to a stub endpoint in a process of its own, run_collect with its store,
ledger and index on disk, and a JudgePool whose judges take a fixed time. The share of the judges' time in which they
evaluate is taken while as many attempts run as are asked for: from the first evaluation to the last attempt's begin.
Beside it, what it costs to keep a running attempt on disk (collect_store.py).
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.benches.collect_store import NUM_TURNS, time_store
from scripts.benches.collect_stubs import StubJudge, busy_share, stub_endpoint
from scripts.benches.output import Target, machine_facts, render_table, report

HELP = "Keep the evaluator busy with many concurrent attempts against a slow stub endpoint."

MIN_BUSY = 0.9
TASKS = "mini:train"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attempts", type=int, default=64, metavar="N", help="at a time; default: 64")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="times so many are made; default: 3")
    parser.add_argument("--latency", type=float, default=1.0, metavar="S", help="of the endpoint; default: 1")
    parser.add_argument("--judges", type=int, default=4, metavar="N", help="default: 4")
    parser.add_argument("--evaluation", type=float, default=0.4, metavar="S", help="of a judge; default: 0.4")
    parser.add_argument("--turns", type=int, default=12, metavar="N", help="an attempt; default: 12")
    parser.add_argument(
        "--graphs", type=int, nargs="*", default=[1, 10, 396], metavar="N", help="store: of tasks; default: 1 10 396"
    )
    parser.add_argument("--every", type=int, default=3, metavar="N", help="an evaluation every so many; default: 3")


def run(args: argparse.Namespace) -> int:
    figures = measure(args)
    rows = [[name, value] for name, value in figures.items() if not isinstance(value, Mapping)]
    busy = f"share of time that the evaluator is busy with {args.attempts} attempts running"
    targets = [
        Target(busy, figures["busy_share"], MIN_BUSY, "at least"),
        Target("attempts not finished", figures["num_planned"] - figures["num_finished"], 0, "at most"),
    ]
    body = f"{args.attempts} attempts at a time, {args.latency:g} s an answer, {args.judges} judges of "
    body += (
        f"{args.evaluation:g} s\n{render_table(('figure', 'value'), rows)}\n\nto keep an attempt of {NUM_TURNS} turns\n"
    )
    kept = [row for num_graphs in args.graphs for row in time_store(num_graphs)]
    body += render_table(("graphs", "as", "CPU ms a turn", "ms a turn"), kept)
    figures["store"] = kept
    return report(args, "collect", body=body, figures=figures, targets=targets, facts=machine_facts("cpu"))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One collection; its figures."""
    from data.passbench import load_tasks
    from eval_harness.judge_pool import JudgePool
    from trajectories.collect import CollectConfig, run_collect
    from trajectories.ledger import Ledger
    from trajectories.policies import make_policy
    from trajectories.policy import Policy

    tasks = load_tasks(TASKS)[: args.attempts]
    num_attempts = -(-args.attempts * args.rounds // len(tasks))
    judges = [StubJudge(args.evaluation) for _ in range(args.judges)]
    began: list[float] = []

    def teacher(own: Mapping[str, Any]) -> Policy:
        began.append(time.monotonic())
        return make_policy({"kind": "openai", **own})

    options = ("--latency", args.latency, "--turns", args.turns, "--every", args.every)
    with (
        tempfile.TemporaryDirectory(prefix="bench-collect-") as folder,
        stub_endpoint(*options) as address,
        JudgePool(judges) as pool,
    ):
        config = CollectConfig(
            name="bench",
            tasks=[TASKS],
            num_attempts=num_attempts,
            num_workers=args.attempts,
            policy={"kind": "teacher", "model": "stub", "base_url": address},
            out_dir=Path(folder) / "collection",
        )
        start, cpu = time.monotonic(), _cpu_s()
        summary = run_collect(
            config, tasks, pool, factories={"teacher": teacher}, progress=True, num_judges=args.judges
        )
        wall_s, cpu_s = time.monotonic() - start, _cpu_s() - cpu
        ledger = Ledger(config.root / "ledger.jsonl")
        stored = sum(path.stat().st_size for path in config.root.rglob("*") if path.is_file())
    first = min(begin for judge in judges for begin, _ in judge.busy)
    num_evaluations = sum(len(judge.busy) for judge in judges)
    return {
        "num_planned": summary.num_planned,
        "num_finished": summary.num_finished,
        "num_answers": ledger.num_answers,
        "num_evaluations": num_evaluations,
        "busy_share": busy_share(judges, first, max(began)),
        "busy_share_of_whole_run": busy_share(judges, start, start + wall_s),
        "wall_s": round(wall_s, 2),
        "answers_per_s": round(ledger.num_answers / wall_s, 2),
        "evaluations_per_s": round(num_evaluations / wall_s, 2),
        "own_cpu_ms_per_answer": round(1e3 * cpu_s / ledger.num_answers, 2),
        "own_cpu_share_of_a_core": round(cpu_s / wall_s, 3),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "stored_kib_per_attempt": round(stored / 1024 / summary.num_planned, 1),
    }


def _cpu_s() -> float:
    """Of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
