"""`passwright tasks check`: a line for each fault of a set of tasks; exit status 2 if there is any."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from scripts.arguments import add_json, say, write_json
from scripts.tasks.reference import add_reference

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from data.task import Task
    from data.task_faults import Fault

HELP = "is every graph well formed, free of calls that are not allowed, and does it run; are hashes and splits right"

TIME_LIMIT_S = 60.0
MEMORY_MB = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reference(parser)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="graphs run at once; default: 1")
    parser.add_argument("--no-run", action="store_true", help="read only: no graph is run, torch is not imported")
    parser.add_argument(
        "--time-limit", type=float, default=TIME_LIMIT_S, metavar="S", help=f"of one graph; default: {TIME_LIMIT_S:g}"
    )
    parser.add_argument(
        "--memory-mb",
        type=int,
        default=MEMORY_MB,
        metavar="MB",
        help=f"of a graph's arguments, and of what one run makes; default: {MEMORY_MB}",
    )
    add_json(parser, "the faults")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from data.task_faults import Fault, by_check, find_faults
    from eval_harness.errors import UserError

    if args.jobs < 1:
        raise UserError(f"--jobs {args.jobs}: give 1 or more")
    faults: list[Fault] = []
    tasks = load_tasks(
        args.task, refuse=lambda task, error: faults.append(Fault(task, None, "format", _one_line(error)))
    )
    faults += find_faults(tasks)
    for fault in faults:
        say(fault.line())
    if not args.no_run:
        faults += _run_graphs(args, tasks, faults)
    if args.json:
        write_json(args.json, [fault.as_json() for fault in faults])
    num_graphs = sum(len(task.graphs) for task in tasks)
    counts = ", ".join(f"{count} {check}" for check, count in by_check(faults).items())
    sound = "all well formed" if args.no_run else "all well formed, and all run"
    say(f"{len(tasks)} tasks, {num_graphs} graphs: {f'{len(faults)} faults ({counts})' if faults else sound}")
    return 2 if faults else 0


def _run_graphs(args: argparse.Namespace, tasks: list[Task], known: list[Fault]) -> list[Fault]:
    """Run every graph whose source may be run, once for each content; a line as soon as one fails."""
    from tqdm import tqdm

    from data.construct.run_pool import check_runs
    from data.task_faults import Fault

    refused = {(fault.task, fault.graph) for fault in known if fault.check == "calls"}
    places = {
        graph.content_hash: (task.task_id, graph)
        for task in reversed(tasks)
        for graph in reversed(task.graphs)
        if (task.task_id, graph.name) not in refused
    }
    chosen = list(reversed(places.values()))
    found: list[Fault] = []
    with tqdm(total=len(chosen), desc="graphs", unit="graph", disable=None) as bar:
        for index, reason in check_runs(
            [graph for _, graph in chosen],
            num_workers=args.jobs,
            time_limit_s=args.time_limit,
            max_bytes=args.memory_mb << 20,
        ):
            bar.update()
            if reason is None:
                continue
            task_id, graph = chosen[index]
            found.append(Fault(task_id, graph.name, "run", reason))
            bar.write(found[-1].line(), file=sys.stderr)
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
