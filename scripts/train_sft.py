"""`accelerate launch -m scripts.train_sft --config configs/sft/tiny.yaml [key=value ...]`: supervised fine-tuning.

Arguments only; the run is training/sft.py's. Every process of a launch runs this file.
"""

from __future__ import annotations

import argparse
import logging
import sys

from scripts.arguments import add_config, say
from scripts.config_loading import load_config
from scripts.exit_status import INTERRUPTED, USER_MISTAKE, is_user_mistake


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status. A failure of ours keeps its traceback: accelerate shows it by rank."""
    try:
        return _train(argv)
    except KeyboardInterrupt:
        say("train_sft: interrupted; the same command goes on from the last checkpoint")
        return INTERRUPTED
    except Exception as error:
        if not is_user_mistake(error):
            raise
        say(f"train_sft: {' '.join(str(error).split())}")
        return USER_MISTAKE


def _train(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="train_sft", description="Supervised fine-tuning of a student.")
    add_config(parser)
    parser.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with a stopped run (default)"
    )
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    from training.sft import SftRunConfig, run_sft

    summary = run_sft(load_config(SftRunConfig, args.config, args.overrides), resume=args.resume)
    # a run shorter than trainer.logging_steps has logged no loss
    losses = ["-" if loss is None else f"{loss:.4f}" for loss in (summary.first_loss, summary.last_loss)]
    say(f"{summary.name}: {summary.num_steps} steps, loss {' -> '.join(losses)}, student in {summary.student_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
