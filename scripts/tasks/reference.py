"""The TASK argument that the actions of `passwright tasks` share."""

from __future__ import annotations

import argparse

REFERENCE = "DIR, FILE.parquet[:split][/task_id] or NAME[:split][/task_id]"


def add_reference(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        parser.add_argument("task", metavar="TASK", nargs="?", help=f"{REFERENCE}; without it, the sets that are there")
    else:
        parser.add_argument("task", metavar="TASK", help=REFERENCE)
