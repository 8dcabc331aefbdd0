"""`passwright tasks show`: a task's graphs, their arguments and operators, and the source of one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scripts.arguments import add_json, say, write_json
from scripts.tasks.reference import add_reference

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from data.graph import Graph
    from data.task import Task

HELP = "a task's graphs: shapes, dtypes, operators, and the source of one"

SHOWN_ARGUMENTS = 4
"""In a graph's line of the table; the others are counted."""
SHOWN_OPERATORS = 64
"""Of a sequence; a subgraph has no more, a full graph thousands."""
SHOWN_GRAPHS = 40
"""Lines of the table, unless --all is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reference(parser)
    parser.add_argument("--graph", metavar="NAME", help="the source of this graph; default: the first")
    parser.add_argument("--all", action="store_true", help="every graph of the table, and every graph's source")
    add_json(parser, "the tasks without sources")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from eval_harness.errors import UserError
    from scripts.tasks.listing import summarize_task

    tasks = load_tasks(args.task)
    if args.graph is not None:
        known = [graph.name for task in tasks for graph in task.graphs]
        if args.graph not in known:
            raise UserError(f"--graph {args.graph}: no such graph; {args.task} has {', '.join(known[:8])}")
        tasks = [task for task in tasks if any(graph.name == args.graph for graph in task.graphs)]
    if args.json:
        write_json(args.json, [summarize_task(task) for task in tasks])
        return 0
    with_source = len(tasks) == 1 or args.all
    print("\n\n".join(render_task(task, only=args.graph, every=args.all, source=with_source) for task in tasks))
    if not with_source:
        say(f"{len(tasks)} tasks; add /TASK_ID for the source of one, or --all")
    return 0


def render_task(task: Task, *, only: str | None = None, every: bool = False, source: bool = True) -> str:
    """A task for a reader: its facts, a line for each graph, and the arguments and source of one (or `every`)."""
    lines = [f"task {task.task_id}" + (f" ({task.split})" if task.split else "")]
    lines += [f"  {name}: {value}" for name, value in task.facts.items()]
    for operators in _operator_sequences(task):
        more = f" and {len(operators) - SHOWN_OPERATORS} more" if len(operators) > SHOWN_OPERATORS else ""
        lines.append(f"  operators: {' '.join(operators[:SHOWN_OPERATORS])}{more}")
    if only is None:
        shown = task.graphs if every else task.graphs[:SHOWN_GRAPHS]
        lines += ["", *(_graph_line(graph) for graph in shown)]
        if len(shown) < len(task.graphs):
            lines.append(f"  ... {len(task.graphs) - len(shown)} more; --all shows them")
    if source:
        chosen = [graph for graph in task.graphs if only in (None, graph.name)]
        for graph in chosen if every else chosen[:1]:
            lines += ["", *_graph_lines(graph)]
    return "\n".join(lines)


def _operator_sequences(task: Task) -> list[tuple[str, ...]]:
    """Distinct ones, in order of appearance; usually one."""
    from data.splits import operator_sequence

    by_source = {graph.graph_hash: graph for graph in reversed(task.graphs)}
    return list(dict.fromkeys(operator_sequence(graph) for graph in reversed(by_source.values())))


def _graph_line(graph: Graph) -> str:
    specs = [graph.specs[name] for name in graph.arguments]
    shown = [
        f"{spec.dtype.removeprefix('torch.')}[{' x '.join(map(str, spec.shape))}]" for spec in specs[:SHOWN_ARGUMENTS]
    ]
    if len(specs) > SHOWN_ARGUMENTS:
        shown.append(f"and {len(specs) - SHOWN_ARGUMENTS} more")
    return f"  {graph.name}  {', '.join(shown)}"


def _graph_lines(graph: Graph) -> list[str]:
    lines = [f"graph {graph.name} {graph.content_hash[:12]}"]
    for name in graph.arguments:
        spec = graph.specs[name]
        shape = " x ".join(map(str, spec.shape)) or "scalar"
        lines.append(f"  {name:<12} {spec.dtype.removeprefix('torch.'):<10} {shape:<20} {spec.role}")
    return [*lines, *(f"  | {line}" for line in graph.model_source.splitlines())]
