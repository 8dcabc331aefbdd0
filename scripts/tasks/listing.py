"""`passwright tasks list`: one line a task, or a set."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_json, say, write_json
from scripts.tasks.reference import add_reference

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from data.task import Task

HELP = "one line a task; without TASK, one line a named set"

TITLE_WIDTH = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reference(parser, optional=True)
    add_json(parser, "the same")


def run(args: argparse.Namespace) -> int:
    if args.task is None:
        return _list_sets(args)
    from data.passbench import load_tasks

    tasks = load_tasks(args.task)
    if args.json:
        write_json(args.json, [summarize_task(task) for task in tasks])
        return 0
    width = min(max(len(task.task_id) for task in tasks), 64)
    split_width = max(len(task.split) for task in tasks)
    for task in tasks:
        print(
            f"{task.task_id:<{width}} {task.split:<{split_width}} {len(task.graphs):>3} graphs  {_title(task)}".rstrip()
        )
    splits = Counter(task.split or "no split" for task in tasks)
    counted = ", ".join(f"{count} {split}" for split, count in sorted(splits.items()))
    print(f"{len(tasks)} tasks ({counted}), {sum(len(task.graphs) for task in tasks)} graphs")
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


def _list_sets(args: argparse.Namespace) -> int:
    from data.task_sets import bundled_sets, default_tasks_dir, imported_sets

    sets = [describe_set(name, path, "bundled") for name, path in bundled_sets().items()]
    sets += [describe_set(name, path, "imported") for name, path in imported_sets().items()]
    if args.json:
        write_json(args.json, sets)
        return 0
    for entry in sets:
        splits = ", ".join(f"{count} {split}" for split, count in entry["splits"].items())
        pinned = ", pinned" if entry["pinned"] else ""
        print(f"{entry['name']:<20} {entry['from']:<9} {entry['num_tasks']:>6} tasks ({splits}){pinned}")
    say(f"imported sets lie in {default_tasks_dir()}")
    return 0


def describe_set(name: str, path: Path, origin: str) -> dict[str, Any]:
    """A named set by its two key columns; no task is decoded. A damaged file is said, not raised."""
    from data.task_pins import pins_path
    from data.task_table import TaskTable

    try:
        splits = Counter(split or "no split" for _, split in TaskTable(path).keys)
    except (ValueError, OSError) as error:
        say(f"{path}: cannot be read ({' '.join(str(error).split())[:160]}); import or build it again")
        splits = Counter()
    return {
        "name": name,
        "from": origin,
        "path": str(path),
        "num_tasks": sum(splits.values()),
        "splits": dict(sorted(splits.items())),
        "pinned": pins_path(path).is_file(),
    }


def _title(task: Task) -> str:
    title = task.facts.get("title", "")
    return title if len(title) <= TITLE_WIDTH else f"{title[: TITLE_WIDTH - 3]}..."
