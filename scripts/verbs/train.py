"""`passwright train`: starts a training script through `accelerate launch`, and hands its exit status back."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from eval_harness.errors import UserError
from scripts.arguments import add_config, add_resume, say

HELP = "Train a student (calls accelerate launch)."

STAGES = {"sft": "scripts.train_sft"}
"""Stage -> the module that accelerate launches."""

CPU_LAUNCH = Path("configs/accelerate/cpu.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stage", choices=list(STAGES), help="what to train with")
    add_config(parser)
    add_resume(parser)
    parser.add_argument(
        "--accelerate-config",
        type=Path,
        default=CPU_LAUNCH,
        metavar="FILE",
        help=f"how many processes, on what; default: {CPU_LAUNCH}",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the command and stop")


def run(args: argparse.Namespace) -> int:
    forwarded = ["--config", str(args.config), *args.overrides, "--resume" if args.resume else "--no-resume"]
    command = launch_command(STAGES[args.stage], forwarded, accelerate_config=args.accelerate_config)
    if args.dry_run:
        print(" ".join(command))
        return 0
    say(" ".join(command[2:]))
    return run_launched(command)


def launch_command(module: str, arguments: Sequence[str], *, accelerate_config: Path) -> list[str]:
    """The command line of one launch. Raises UserError where accelerate or its configuration is missing."""
    from scripts.config_loading import find_shipped

    if importlib.util.find_spec("accelerate") is None:
        raise UserError("accelerate is not installed; pip install -e '.[train]' -c constraints/cpu.txt")
    path = find_shipped(accelerate_config)
    if not path.is_file():
        raise UserError(f"{accelerate_config}: no such file; give one of configs/accelerate, or what accelerate wrote")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(path)]
    return [*launcher, "-m", module, *arguments]


def run_launched(command: Sequence[str]) -> int:
    """Run it to its end; Ctrl-C goes to it (it is in our process group) and is waited for."""
    process = subprocess.Popen(command)
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt:
            continue
    # a launch of several processes reports how it ended as a negative signal number
    return 130 if status in (-signal.SIGINT, 130) else status
