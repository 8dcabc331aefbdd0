"""`accelerate launch -m scripts.train_sft --config configs/sft/tiny.yaml [key=value ...]`: supervised fine-tuning.

Arguments only; the run is training/sft.py's. Every process of a launch runs this file.
"""

from __future__ import annotations

import sys

from scripts.arguments import say
from scripts.config_loading import load_config
from scripts.exit_status import run_launched_stage
from scripts.launched_stage import is_first_process, parse_stage, print_dry_run


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return run_launched_stage(lambda: _train(argv), name="train_sft")


def _train(argv: list[str] | None) -> int:
    args = parse_stage(
        argv,
        name="train_sft",
        description="Supervised fine-tuning of a student.",
        dry_run="print configuration, tokens, steps and memory; refuse what cannot fit",
    )
    from training.sft import SftRunConfig, run_sft
    from training.sft_prepare import dry_run

    config = load_config(SftRunConfig, args.config, args.overrides)
    if args.dry_run:
        return print_dry_run(dry_run, config)
    summary = run_sft(config, resume=args.resume)
    # a run shorter than trainer.logging_steps has logged no loss
    losses = ["-" if loss is None else f"{loss:.4f}" for loss in (summary.first_loss, summary.last_loss)]
    if is_first_process():
        say(f"{summary.name}: {summary.num_steps} steps, loss {' -> '.join(losses)}, student in {summary.student_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
