"""`passwright bi axis`: where the batch lies in each tensor of a task's graphs, found from the graphs alone."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_json, say, write_json
from scripts.tasks.reference import add_reference

if TYPE_CHECKING:  # torch takes longer to import than --help may take
    from data.graph import Graph
    from data.task import Task
    from eval_harness.batch_invariance.row_axis import BatchLayout, NotApplicable

HELP = "the batch axis of every graph of a task, or why there is none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reference(parser)
    parser.add_argument("--graph", metavar="NAME", help="only this graph")
    parser.add_argument("--first", action="store_true", help="only the first graph of each task")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs that are drawn; default: 0")
    add_json(parser, "the axes")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from eval_harness.batch_invariance.batch_axis import find_batch_layout

    tasks = load_tasks(args.task)
    found: list[dict[str, Any]] = []
    for task in tasks:
        if args.json != "-":
            print(f"task {task.task_id}")
        for graph in _chosen(task, args):
            result = find_batch_layout(graph, seed=args.seed)
            found.append({"task": task.task_id, "graph": graph.name, **_as_json(graph, result)})
            if args.json != "-":
                print(f"  {graph.name}: {_shown(graph, result)}")
    _check_found(args, found)
    if args.json:
        write_json(args.json, found)
    layouts = [entry["layout"] for entry in found if entry["layout"] is not None]
    resizable = sum(layout["resizable"] for layout in layouts)
    say(f"{len(found)} graphs: {len(layouts)} have a batch axis, {resizable} of these can be resized")
    return 0


def _shown(graph: Graph, result: BatchLayout | NotApplicable) -> str:
    from eval_harness.batch_invariance.row_axis import NotApplicable

    return f"none: {result.reason}" if isinstance(result, NotApplicable) else result.describe(graph.arguments)


def _chosen(task: Task, args: argparse.Namespace) -> list[Graph]:
    if args.graph is not None:
        return [graph for graph in task.graphs if graph.name == args.graph]
    return list(task.graphs[:1] if args.first else task.graphs)


def _check_found(args: argparse.Namespace, found: list[dict[str, Any]]) -> None:
    from eval_harness.errors import UserError

    if args.graph is not None and not found:
        raise UserError(f"--graph {args.graph}: no such graph in {args.task}; `passwright tasks show` lists them")


def _as_json(graph: Graph, result: BatchLayout | NotApplicable) -> dict[str, Any]:
    from eval_harness.batch_invariance.row_axis import NotApplicable

    if isinstance(result, NotApplicable):
        return {"layout": None, "reason": result.reason}
    layout = asdict(result)
    layout["inputs"] = dict(zip(graph.arguments, layout["inputs"], strict=True))
    return {"layout": layout, "reason": None}
