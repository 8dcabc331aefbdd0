"""What both sides of `passwright bench sft` share: the clock of steps, what a worker is asked and what it answers."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from scripts.benches.sft_profile import StepProfile

OUT_OF_MEMORY = 5
"""Exit status of a worker that ran out of memory."""


class SftSpec(BaseModel):
    """One measurement, as a worker reads it."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_dir: Path
    rows_dir: Path
    """Rows of input_ids and labels, saved by datasets."""
    out_dir: Path
    length: int
    train_batch: int
    """Rows an optimizer step, over all processes."""
    micro_batch: int | None = None
    """Rows of a forward pass; None: as the side chooses."""
    num_steps: int
    max_seconds: float
    """Training ends after the step in which they have passed."""
    on_cpu: bool = False
    fused_ops: str = "auto"
    checkpointing: str | int = "auto"
    offload_activations: bool = False
    profile: bool = False
    """Profile one step more, the last one."""
    attention_layers: int | None = None
    """Layers that really attend, the last ones; None: all. For memory alone: see sft_ours.py."""


class SftResult(BaseModel):
    """What a worker measured; times and losses by step."""

    model_config = ConfigDict(extra="forbid")

    step_s: list[float]
    losses: list[float]
    peak_gib: float
    """Of the process that held most, as torch's allocator counts it."""
    planned_gib: float | None = None
    choices: str = ""
    """What the side chose by itself."""
    profile: StepProfile | None = None


class StepClock(TrainerCallback):
    """Seconds of each optimizer step; waits for the GPU at its end."""

    def __init__(self, max_seconds: float) -> None:
        self.max_seconds = max_seconds
        self.step_s: list[float] = []
        self._first = self._last = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._first = self._last = _now()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        now = _now()
        self.step_s.append(now - self._last)
        self._last = now
        # every process must stop after the same step, and their clocks differ by less than a step
        if now - self._first > self.max_seconds and args.world_size == 1:
            control.should_training_stop = True


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def run_worker(measure: Callable[[SftSpec], SftResult]) -> int:
    """Read the spec that the command line names, measure, write result.json beside it. Returns the exit status."""
    path = Path(sys.argv[1])
    spec = SftSpec.model_validate_json(path.read_text())
    try:
        result = measure(spec)
    except torch.OutOfMemoryError:
        print("out of memory", file=sys.stderr)
        return OUT_OF_MEMORY
    if int(os.environ.get("RANK", "0")) == 0:
        path.with_name("result.json").write_text(json.dumps(result.model_dump()))
    return 0


def peak_gib() -> float:
    """Of this process's GPU; 0 on a CPU."""
    return torch.cuda.max_memory_allocated() / float(1 << 30) if torch.cuda.is_available() else 0.0
