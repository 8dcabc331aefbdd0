"""The peer of `passwright bench sft`: TRL's SFTTrainer as its documentation shows it, with default settings.

    python -m scripts.benches.sft_plain SPEC.json

What differs from the defaults, and why: max_length (its 1,024 would cut the rows), the number of steps, a line of log a
step, no checkpoints; and the rows of a forward pass where the default of 8 does not fit.
"""

from __future__ import annotations

import sys

from scripts.benches.sft_clock import SftResult, SftSpec, StepClock, peak_gib, run_worker
from scripts.benches.sft_profile import StepProfiler


def measure(spec: SftSpec) -> SftResult:
    """Train on the rows and time the steps."""
    from datasets import load_from_disk
    from trl import SFTConfig, SFTTrainer

    micro = spec.micro_batch or spec.train_batch
    clock = StepClock(spec.max_seconds)
    profiler = StepProfiler(spec.num_steps)
    trainer = SFTTrainer(
        model=str(spec.model_dir),
        args=SFTConfig(
            output_dir=str(spec.out_dir / "trainer"),
            max_length=None,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=spec.train_batch // micro,
            max_steps=spec.num_steps + spec.profile,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **({"use_cpu": True, "bf16": False} if spec.on_cpu else {}),
        ),
        train_dataset=load_from_disk(str(spec.rows_dir)),
        callbacks=[clock, profiler],
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return SftResult(
        step_s=clock.step_s[: spec.num_steps],
        losses=losses,
        peak_gib=peak_gib(),
        choices=f"{micro} rows a forward pass",
        profile=profiler.found,
    )


if __name__ == "__main__":
    sys.exit(run_worker(measure))
