"""`passwright tasks`: build, import, list, show, count, check, screen, export. One action a file in scripts/tasks/."""

from __future__ import annotations

import argparse
import importlib

from scripts.arguments import add_actions
from scripts.tasks.showing import render_task

__all__ = ["ACTIONS", "HELP", "add_arguments", "render_task", "run"]  # render_task is `passwright show`'s too

HELP = "Build, import, list, show, check, screen or export tasks."

ACTIONS = {
    "build": "scripts.tasks.building",
    "import": "scripts.tasks.importing",
    "list": "scripts.tasks.listing",
    "show": "scripts.tasks.showing",
    "stats": "scripts.tasks.stats",
    "check": "scripts.tasks.check",
    "screen": "scripts.tasks.screen",
    "export": "scripts.tasks.export",
}
"""Action -> module with HELP, add_arguments(parser) and run(args) -> exit status; heavy imports inside run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    return importlib.import_module(ACTIONS[args.action]).run(args)
