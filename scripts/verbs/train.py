"""`passwright train`: starts a training script through `accelerate launch`, and hands its exit status back."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eval_harness.errors import UserError
from scripts.arguments import add_config, add_resume, say
from scripts.exit_status import INTERRUPTED, STATUS_FILE

if TYPE_CHECKING:
    from training.sft_launch import LaunchFacts

HELP = "Train a student (calls accelerate launch)."

STAGES = {"sft": "scripts.train_sft", "grpo": "scripts.train_grpo"}
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
    parser.add_argument("--num-processes", type=int, metavar="N", help="instead of the file's number")
    parser.add_argument("--sp-size", type=int, metavar="N", help="processes that share a row, instead of the file's")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the configuration, tokens, steps, evaluations and memory of that launch and its command; refuse "
        "what cannot fit",
    )


def run(args: argparse.Namespace) -> int:
    forwarded = ["--config", str(args.config), *args.overrides, "--resume" if args.resume else "--no-resume"]
    command = launch_command(
        STAGES[args.stage],
        forwarded,
        accelerate_config=args.accelerate_config,
        num_processes=args.num_processes,
        sp_size=args.sp_size,
    )
    if args.dry_run:
        print("\n".join([*_plan(args), f"command: {' '.join(command)}"]))
        return 0
    say(" ".join(command[2:]))
    return run_launched(command)


def launch_command(
    module: str,
    arguments: Sequence[str],
    *,
    accelerate_config: Path,
    num_processes: int | None = None,
    sp_size: int | None = None,
) -> list[str]:
    """The command line of one launch. Raises UserError where accelerate or its configuration is missing."""
    if importlib.util.find_spec("accelerate") is None:
        raise UserError("accelerate is not installed; pip install -e '.[train]' -c constraints/cpu.txt")
    path = _launch_file(accelerate_config)
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(path)]
    launcher.append("--quiet")  # no traceback of its own below the line that says what is wrong
    if num_processes is not None:
        launcher += ["--num_processes", str(num_processes)]
    facts = _facts(path, num_processes=num_processes, sp_size=sp_size)
    if facts.sp_size > 1:
        # accelerate counts rows in parallel from this, not from the number of processes
        launcher += ["--parallelism_config_sp_size", str(facts.sp_size)]
        launcher += ["--parallelism_config_dp_replicate_size", str(facts.data_parallel)]
    return [*launcher, "-m", module, *arguments]


def run_launched(command: Sequence[str]) -> int:
    """Run it to its end; Ctrl-C goes to it (it is in our process group) and is waited for."""
    with tempfile.TemporaryDirectory(prefix="passwright-") as folder:
        told = Path(folder) / "status"
        process = subprocess.Popen(command, env=os.environ | {STATUS_FILE: str(told)})
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:
                continue
        if status and told.is_file():
            return int(told.read_text())
    # a launch of several processes reports how it ended as a negative signal number
    return INTERRUPTED if status in (-signal.SIGINT, INTERRUPTED) else status


def _plan(args: argparse.Namespace) -> list[str]:
    """The pre-flight of this launch, without launching: it may be meant for another machine."""
    from scripts.config_loading import load_config

    path = _launch_file(args.accelerate_config)
    facts = _facts(path, num_processes=args.num_processes, sp_size=args.sp_size)
    if args.stage == "grpo":
        from training import grpo_prepare
        from training.grpo_config import GrpoRunConfig

        return grpo_prepare.dry_run(load_config(GrpoRunConfig, args.config, args.overrides), facts)
    from training import sft_prepare
    from training.sft_config import SftRunConfig

    return sft_prepare.dry_run(load_config(SftRunConfig, args.config, args.overrides), facts)


def _facts(path: Path, **changed: int | None) -> LaunchFacts:
    from training.sft_launch import launch_from_file

    return launch_from_file(path, **{key: value for key, value in changed.items() if value is not None})


def _launch_file(accelerate_config: Path) -> Path:
    from scripts.config_loading import find_shipped

    path = find_shipped(accelerate_config)
    if not path.is_file():
        raise UserError(f"{accelerate_config}: no such file; give one of configs/accelerate, or what accelerate wrote")
    return path
