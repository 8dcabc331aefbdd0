"""`passwright tasks`: list, show, check and export tasks. Reads and writes files; runs no graph."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_json, say, write_json

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from data.graph import Graph
    from data.task import Task

HELP = "List, show, check or export tasks."

TITLE_WIDTH = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    reference = "DIR, FILE.parquet[:split][/task_id] or NAME[:split][/task_id]"
    for action, help_text in (
        ("list", "one line a task"),
        ("show", "a task's graphs: arguments and source"),
        ("check", "is every graph well formed and free of calls that are not on the allow-list"),
        ("export", "write tasks as PassNet folders"),
    ):
        subparser = actions.add_parser(action, help=help_text, description=help_text)
        subparser.add_argument("task", metavar="TASK", help=reference)
        if action == "export":
            subparser.add_argument("--out", type=Path, required=True, metavar="DIR", help="one folder a task below DIR")
        elif action == "show":
            subparser.add_argument("--graph", metavar="NAME", help="this graph only")
        if action != "export":
            add_json(subparser, "the same")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks

    tasks = load_tasks(args.task)
    return {"list": _list, "show": _show, "check": _check, "export": _export}[args.action](args, tasks)


def _list(args: argparse.Namespace, tasks: list[Task]) -> int:
    if args.json:
        write_json(args.json, [summarize_task(task) for task in tasks])
        return 0
    for task in tasks:
        print(f"{task.task_id:<40} {task.split:<6} {len(task.graphs):>3} graphs  {_title(task)}")
    splits = Counter(task.split or "no split" for task in tasks)
    counted = ", ".join(f"{count} {split}" for split, count in sorted(splits.items()))
    print(f"{len(tasks)} tasks ({counted}), {sum(len(task.graphs) for task in tasks)} graphs")
    return 0


def _show(args: argparse.Namespace, tasks: list[Task]) -> int:
    from eval_harness.errors import UserError

    if args.graph is not None:
        known = [graph.name for task in tasks for graph in task.graphs]
        if args.graph not in known:
            raise UserError(f"--graph {args.graph}: no such graph; {args.task} has {', '.join(known[:8])}")
    if args.json:
        write_json(args.json, [summarize_task(task) for task in tasks])
        return 0
    for task in tasks:
        print(render_task(task, only=args.graph))
    return 0


def _check(args: argparse.Namespace, tasks: list[Task]) -> int:
    from data.graph import MalformedGraphError
    from data.model_check import check_model_source

    refused: list[dict[str, str]] = []
    for task in tasks:
        for graph in task.graphs:
            try:
                check_model_source(graph)
            except MalformedGraphError as error:
                refused.append({"task": task.task_id, "graph": graph.name, "reason": str(error)})
    if args.json:
        write_json(args.json, refused)
    for item in refused:
        say(f"{item['task']}: {item['reason']}")
    num_graphs = sum(len(task.graphs) for task in tasks)
    say(f"{len(tasks)} tasks, {num_graphs} graphs: {f'{len(refused)} refused' if refused else 'all well formed'}")
    return 2 if refused else 0


def _export(args: argparse.Namespace, tasks: list[Task]) -> int:
    from data.passbench import write_task

    for task in tasks:
        write_task(task, args.out / task.task_id)
    say(f"{len(tasks)} tasks written below {args.out}")
    return 0


def summarize_task(task: Task) -> dict[str, Any]:
    """A task as plain data, without sources."""
    return {
        "task_id": task.task_id,
        "split": task.split,
        "task_hash": task.content_hash,
        "facts": dict(task.facts),
        "graphs": [
            {
                "graph": graph.name,
                "graph_hash": graph.content_hash,
                "arguments": {
                    name: {"shape": list(graph.specs[name].shape), "dtype": graph.specs[name].dtype}
                    for name in graph.arguments
                },
            }
            for graph in task.graphs
        ],
    }


def render_task(task: Task, *, only: str | None = None) -> str:
    """A task for a reader: its facts, and each graph's arguments and source."""
    lines = [f"task {task.task_id}" + (f" ({task.split})" if task.split else "")]
    lines += [f"  {name}: {value}" for name, value in task.facts.items()]
    for graph in task.graphs:
        if only in (None, graph.name):
            lines += ["", *_graph_lines(graph)]
    return "\n".join(lines)


def _graph_lines(graph: Graph) -> list[str]:
    lines = [f"graph {graph.name} {graph.content_hash[:12]}"]
    for name in graph.arguments:
        spec = graph.specs[name]
        shape = " x ".join(map(str, spec.shape)) or "scalar"
        lines.append(f"  {name:<12} {spec.dtype.removeprefix('torch.'):<10} {shape:<20} {spec.role}")
    return [*lines, *(f"  | {line}" for line in graph.model_source.splitlines())]


def _title(task: Task) -> str:
    title = task.facts.get("title", "")
    return title if len(title) <= TITLE_WIDTH else f"{title[: TITLE_WIDTH - 3]}..."
