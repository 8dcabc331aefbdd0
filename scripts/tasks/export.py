"""`passwright tasks export`: tasks as PassNet folders, every graph file byte for byte."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from scripts.arguments import say
from scripts.tasks.reference import add_reference

HELP = "write tasks as PassNet folders, one a task"

_FOLDER_NAME = re.compile(r"[^/\\\0]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reference(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="one folder a task below DIR")


def run(args: argparse.Namespace) -> int:
    from data.passbench import MalformedTaskError, load_tasks, write_task

    tasks = load_tasks(args.task)
    for task in tasks:
        if not _FOLDER_NAME.fullmatch(task.task_id) or task.task_id in (".", ".."):
            raise MalformedTaskError(f"task_id {task.task_id!r} is no name for a folder; rename the task first")
        if (args.out / task.task_id).exists():
            raise MalformedTaskError(f"{args.out / task.task_id}: there already; give another --out or remove it")
    for task in tasks:
        write_task(task, args.out / task.task_id)
    say(f"{len(tasks)} tasks written below {args.out}")
    return 0
