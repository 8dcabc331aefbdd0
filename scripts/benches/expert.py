"""`passwright bench expert`: how many tasks the built-in expert solves, and how fast its passes are.

    tasks in random order -> the expert's plan -> a real evaluation -> beside eager and TorchInductor on the same graphs

The pass is what the expert writes without its deliberate mistakes, judged once and fresh; nothing is chosen among
several. A figure against TorchInductor is like for like: both called without guards, and both through torch.compile.
Each result is appended to OUT/expert.jsonl at once, so that a run may end at any moment and go on later.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from scripts.arguments import add_resume, check_device, say

if TYPE_CHECKING:
    from data.task import Task
    from scripts.benches.expert_plan import RunSettings
    from scripts.benches.expert_records import Progress, TaskRecord

HELP = "The expert's share of solved tasks, its AS and speedups, beside eager's and TorchInductor's on the same graphs."

DEFAULT_OUT = Path("runs/bench/expert")
UNTIMED_OUT = Path("runs/bench/expert_correctness")
BASELINES = ("eager", "inductor")
DEFAULT_JOBS = {"cpu": 1, "cuda": 4}
"""Judges a device: on a GPU they compile while another one times; on a CPU they would only disturb each other."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", default="passbench_lite:train", metavar="TASK", help="default: passbench_lite:train")
    parser.add_argument("--sample", type=int, metavar="N", help="a random sample of the tasks; default: all")
    parser.add_argument("--seed", type=int, default=0, help="draws the order of the tasks; default: 0")
    parser.add_argument(
        "--protocol", default="reward", choices=("reward", "strict"), help="every graph timed; default: reward"
    )
    parser.add_argument(
        "--with", dest="baselines", metavar="NAMES", help=f"compare with these; default: {','.join(BASELINES)}; none"
    )
    parser.add_argument(
        "--inductor-graphs", type=int, metavar="N",
        help="compare on one graph of each of the first N tasks with a pass; default: of all of them",
    )  # fmt: skip
    parser.add_argument(
        "--guards", action=argparse.BooleanOptionalAction, default=True, help="compare through torch.compile too"
    )
    parser.add_argument(
        "--gpu-time", action=argparse.BooleanOptionalAction, default=True, help="GPU time by the profiler too"
    )
    parser.add_argument("--correctness-only", action="store_true", help="no timing: the share of CORRECT tasks alone")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="end after this time with what there is")
    parser.add_argument("--jobs", type=int, metavar="N", help="judges for each device; default: 4 on a GPU, 1 on a CPU")
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help=f"results and tables; default: {DEFAULT_OUT}, or {UNTIMED_OUT} with --correctness-only",
    )  # fmt: skip
    add_resume(parser)


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from scripts.benches.expert_plan import draw_order
    from scripts.benches.expert_summary import summarise, targets
    from scripts.benches.expert_tables import render
    from scripts.benches.output import machine_facts, report

    started = time.monotonic()
    settings = read_settings(args)
    args.out = args.out or (DEFAULT_OUT if settings.protocol.timing else UNTIMED_OUT)
    tasks = load_tasks(args.tasks)
    order = draw_order(tasks, seed=args.seed, sample=args.sample)
    deadline = None if args.max_seconds is None else started + args.max_seconds
    progress, confinement = measure(args, settings, order, deadline)
    figures: dict[str, Any] = {"tasks": args.tasks, "asked": len(tasks), "sampled": len(order), "seed": args.seed}
    figures |= {"protocol": settings.protocol.model_dump(mode="json"), "wall_s": round(time.monotonic() - started, 1)}
    figures |= summarise(progress, {task.task_id: task for task in order}, settings)
    return report(
        args,
        "expert",
        body=render(figures),
        figures=figures,
        targets=targets(figures, settings.device),
        facts=machine_facts(settings.device, confinement or None),
    )


def read_settings(args: argparse.Namespace) -> RunSettings:
    """The arguments, checked. Raises UserError."""
    from eval_harness.presets import load_protocol
    from scripts.benches.expert_plan import RunSettings

    device = check_device(args.device)
    for name in ("sample", "inductor_graphs", "jobs"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} {value}: give at least 1")
    baselines = () if args.correctness_only else _baselines(args.baselines)
    if args.correctness_only and args.baselines not in (None, "none"):
        raise UserError(f"--with {args.baselines}: --correctness-only times nothing to compare; leave one of them out")
    protocol = load_protocol(
        args.protocol, max_timed_graphs=None, gpu_time=args.gpu_time, timing=not args.correctness_only
    )
    return RunSettings(
        device=device,
        protocol=protocol,
        seed=args.seed,
        baselines=baselines,  # type: ignore[arg-type]
        guards=args.guards,
        max_compared=args.inductor_graphs,
    )


def _baselines(text: str | None) -> tuple[str, ...]:
    names = BASELINES if text is None else tuple(name for name in text.split(",") if name and name != "none")
    for name in names:
        if name not in BASELINES:
            raise UserError(f"--with {name}: unknown; choose among {', '.join(BASELINES)}, or none")
    return tuple(dict.fromkeys(names))


def measure(
    args: argparse.Namespace, settings: RunSettings, order: list[Task], deadline: float | None
) -> tuple[Progress, dict[str, str]]:
    """The run, and the confinement that its last verdict tells of. Raises UserError, HarnessError."""
    from eval_harness.executor import LocalExecutor
    from scripts.benches.expert_records import ResultFile
    from scripts.benches.expert_runs import ExpertRun

    jobs = args.jobs or DEFAULT_JOBS[settings.device.partition(":")[0]]
    results = ResultFile(args.out, conditions(settings), resume=args.resume)
    known = f", going on with {len(results.tasks)} tasks of {results.path}" if results.tasks else ""
    say(f"bench expert: {len(order)} tasks on {settings.device}, {settings.protocol.name}, {jobs} judges{known}")

    def tell(index: int, task: Task, record: TaskRecord) -> None:
        say(f"[{index + 1}/{len(order)}] {task.task_id[:12]} {task.facts.get('title', '')[:40]}: {told(record)}")

    try:
        with LocalExecutor(settings.device, num_judges=jobs) as pool:
            progress = ExpertRun(settings, order, pool, results, on_task=tell).run(deadline)
    finally:
        results.close()
    verdicts = [record.verdict for record in progress.reached if record.verdict and record.verdict.confinement]
    return progress, dict(verdicts[-1].confinement) if verdicts else {}


def conditions(settings: RunSettings) -> dict[str, Any]:
    """What two results must share to stand in one table."""
    from eval_harness.machine import describe_machine, describe_versions

    machine, versions = describe_machine(settings.device), describe_versions()
    return {
        "device": settings.device.partition(":")[0],
        "protocol": settings.protocol.model_dump(mode="json"),
        "machine": {key: machine[key] for key in ("cpu", "gpu") if machine.get(key)},
        "versions": {key: versions[key] for key in ("torch", "triton", "numba") if versions.get(key)},
    }


def told(record: TaskRecord) -> str:
    """One task's end on one line."""
    from eval_harness.scores import geometric_mean

    if record.error is not None:
        return f"the harness failed: {record.error}"
    if record.verdict is None:
        return f"no pass ({record.plan.refused[0] if record.plan.refused else 'no reason given'})"
    graphs = record.verdict.graphs
    outcomes = sorted({str(graph.outcome) for graph in graphs})
    speedup = geometric_mean([graph.speedup for graph in graphs if graph.speedup])
    gpu = geometric_mean([graph.gpu_speedup for graph in graphs if graph.gpu_speedup])
    measured = (f" x{speedup:.2f}" if speedup else "") + (f", GPU x{gpu:.2f}" if gpu else "")
    return f"{record.verdict.num_correct}/{len(graphs)} {', '.join(outcomes)}{measured} {record.wall_s:.1f} s"
