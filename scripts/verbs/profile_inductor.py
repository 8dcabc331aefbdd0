"""`passwright profile-inductor`: where TorchInductor helps, where it does not and why (PassNet's Appendix G)."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError
from scripts.arguments import add_device, add_json, add_resume, check_device, say

HELP = "TorchInductor on many graphs: success, speedups with and without guards, causes of slowdowns, precision."

DEFAULT_TASKS = ("passbench_lite",)
DEFAULT_SAMPLE = 300
DEFAULT_JOBS = {"cpu": 1, "cuda": 6}
MAX_DRAWS_DIFFERENCE = 0.02
"""Of success on our robust draws and on PassNet's (fidelity of the draws)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_device(parser)
    parser.add_argument(
        "--tasks", action="append", metavar="TASK", help="whose graphs; may be given again; default: passbench_lite"
    )
    parser.add_argument(
        "--sample", type=int, default=DEFAULT_SAMPLE, metavar="N", help=f"graphs at random; default: {DEFAULT_SAMPLE}"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the order of the graphs; default: 0")
    parser.add_argument(
        "--protocol", default="reward", choices=("reward", "strict"), help="of the clock; default: reward, 0.5 s a time"
    )
    parser.add_argument(
        "--draws", action=argparse.BooleanOptionalAction, default=True,
        help="success on PassNet's draws and on robust ones, beside each other",
    )  # fmt: skip
    parser.add_argument("--max-seconds", type=float, metavar="S", help="begin no further graph then")
    parser.add_argument("--jobs", type=int, metavar="N", help="judges; default: 6 on a GPU, 1 on a CPU")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/profile_inductor"), metavar="DIR",
        help="results and tables; default: runs/profile_inductor",
    )  # fmt: skip
    add_json(parser, "the figures")
    add_resume(parser)


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from eval_harness.executor import LocalExecutor
    from eval_harness.inductor_profile import ProfiledGraph, summarise
    from eval_harness.presets import load_protocol
    from scripts.benches.output import Target, machine_facts, report
    from scripts.inductor_runs import ProfileFile, draw_graphs, run_profile
    from scripts.inductor_tables import render

    device = check_device(args.device)
    for name in ("sample", "jobs"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(f"--{name} {value}: give at least 1")
    started = time.monotonic()
    jobs = args.jobs or DEFAULT_JOBS[device.partition(":")[0]]
    tasks = [task for ref in args.tasks or DEFAULT_TASKS for task in load_tasks(ref)]
    graphs = draw_graphs(tasks, seed=args.seed, sample=args.sample)
    protocol = load_protocol(args.protocol, gpu_time=True, max_timed_graphs=None, unseen_shapes=0, unseen_dtypes=0)
    draws = ("passnet", "robust") if args.draws else ()
    results = ProfileFile(args.out / "graphs.jsonl", conditions(device, protocol, draws), resume=args.resume)
    known = f", {len(results.records)} of them measured before" if results.records else ""
    say(f"profile-inductor: {len(graphs)} graphs of {len(tasks)} tasks on {device}, {jobs} judges{known}")

    def tell(place: int, record: ProfiledGraph) -> None:
        say(f"[{place + 1}/{len(graphs)}] {record.graph[-40:]}: {told(record)}")

    try:
        with LocalExecutor(device, num_judges=jobs) as evaluator:
            is_whole = run_profile(
                graphs, evaluator, protocol, results, draws=draws, num_workers=2 * jobs,
                deadline=None if args.max_seconds is None else started + args.max_seconds, on_graph=tell,
            )  # fmt: skip
    finally:
        results.close()
    records = [r for _, graph in graphs if (r := results.records.get(graph.content_hash)) is not None]
    figures: dict[str, Any] = {
        "tasks": args.tasks or list(DEFAULT_TASKS), "asked": len(graphs), "seed": args.seed, "is_whole": is_whole,
        "protocol": protocol.model_dump(mode="json"), "wall_s": round(time.monotonic() - started, 1),
    } | summarise(records)  # fmt: skip
    targets = []
    if (found := figures["draws"]).get("robust") is not None:
        difference = abs(found["robust"] - found["passnet"])
        targets = [Target("success on robust draws beside PassNet's", difference, MAX_DRAWS_DIFFERENCE, "at most")]
    return report(args, "profile-inductor", body=render(figures), figures=figures, targets=targets,
                  facts=machine_facts(device))  # fmt: skip


def conditions(device: str, protocol: Any, draws: tuple[str, ...]) -> dict[str, Any]:
    """What results must share to stand in one table."""
    from eval_harness.machine import describe_machine, describe_versions

    machine, versions = describe_machine(device), describe_versions()
    return {
        "device": device.partition(":")[0],
        "protocol": protocol.model_dump(mode="json"),
        "draws": list(draws),
        "machine": {key: machine[key] for key in ("cpu", "gpu") if machine.get(key)},
        "versions": {key: versions[key] for key in ("torch", "triton") if versions.get(key)},
    }


def told(record: Any) -> str:
    """One graph's end on one line."""
    if record.error is not None:
        return f"the harness failed: {record.error}"
    parts = [f"{record.num_nodes} nodes"]
    for name, verdict in (("", record.direct), ("with guards ", record.guarded)):
        speed = f" x{verdict.speedup:.2f}" if verdict.speedup else ""
        parts.append(f"{name}{verdict.outcome}{speed}")
    return ", ".join(parts) + (f", slower: {record.cause}" if record.cause else "")
