"""`accelerate launch -m scripts.train_grpo --config configs/grpo/tiny.yaml [key=value ...]`: GRPO against the harness.

Arguments only; the run is training/grpo.py's. Every process of a launch runs this file.
"""

from __future__ import annotations

import sys

from scripts.arguments import check_executor_device, say
from scripts.config_loading import load_config
from scripts.exit_status import run_launched_stage
from scripts.launched_stage import is_first_process, parse_stage, print_dry_run


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return run_launched_stage(lambda: _train(argv), name="train_grpo")


def _train(argv: list[str] | None) -> int:
    args = parse_stage(
        argv,
        name="train_grpo",
        description="GRPO of a student against the harness.",
        dry_run="print configuration, rollouts, evaluations, tokens and memory",
    )
    from training.grpo_config import GrpoRunConfig

    config = load_config(GrpoRunConfig, args.config, args.overrides)
    if args.dry_run:
        from training.grpo_prepare import dry_run

        return print_dry_run(dry_run, config)
    for device in config.evaluator.devices:
        check_executor_device(config.evaluator.executor, device)
    from training.grpo import run_grpo

    summary = run_grpo(config, resume=args.resume)
    if is_first_process():
        say(f"{summary.describe()}; student in {summary.student_dir}")
        if summary.stopped_by:
            say(f"{summary.name}: ended before its last step: {summary.stopped_by}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
