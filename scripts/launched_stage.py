"""What the scripts that `accelerate launch` starts have in common: arguments, log, dry run. Every process runs them."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from scripts.arguments import add_config

if TYPE_CHECKING:
    from training.sft_launch import LaunchFacts

Config = TypeVar("Config")


def parse_stage(argv: Sequence[str] | None, *, name: str, description: str, dry_run: str) -> argparse.Namespace:
    """--config, overrides, --resume, --dry-run (dry_run: its help); the log goes to stderr from here on."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    add_config(parser)
    parser.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with a stopped run (default)"
    )
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    return args


def is_first_process() -> bool:
    """Whether this one speaks for the launch."""
    return int(os.environ.get("RANK", "0")) == 0


def print_dry_run(dry_run: Callable[[Config, LaunchFacts], list[str]], config: Config) -> int:
    """What this launch would do, from its first process; returns the exit status."""
    import torch

    from training.sft_launch import launch_from_environment

    if is_first_process():
        print("\n".join(dry_run(config, launch_from_environment(on_cpu=not torch.cuda.is_available()))))
    return 0
