"""Where the GPU's time goes in a training step, for `passwright bench sft --profile`, by torch's profiler."""

from __future__ import annotations

import re
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

NUM_SHOWN = 12
"""Kernels that are named; the others are in their groups' sums."""
GROUPS = (
    ("attention", r"flash|fmha|sdpa|attention|mha_"),
    ("matrix products", r"gemm|gemv|cutlass|nvjet|xmma|cublas|splitk|aten::(mm|addmm|bmm)$"),
    ("optimizer", r"multi_tensor|adam|foreach"),
    ("copies", r"memcpy|memset|copy|catarray|fillfunctor"),
    ("compiled", r"^triton_|compiled"),
)
"""Name and what the names of its kernels contain; the first that fits. Everything else is "other"."""


class StepProfile(BaseModel):
    """One step. Milliseconds of work on the device; on a CPU, of operators there."""

    model_config = ConfigDict(extra="forbid")

    groups: dict[str, float]
    kernels: list[tuple[str, float, int]]
    """Name, milliseconds, launches: the longest ones."""


def group_of(name: str) -> str:
    """Of a kernel, by its name."""
    return next((group for group, pattern in GROUPS if re.search(pattern, name, re.IGNORECASE)), "other")


class StepProfiler(TrainerCallback):
    """Profiles the step after `after_steps`, which is then no step to time."""

    def __init__(self, after_steps: int) -> None:
        self.after_steps = after_steps
        self.found: StepProfile | None = None
        self._profiler: Any = None

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step != self.after_steps:
            return
        activity = torch.profiler.ProfilerActivity
        on_cuda = torch.cuda.is_available()
        self._profiler = torch.profiler.profile(activities=[activity.CUDA if on_cuda else activity.CPU])
        self._profiler.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._profiler is None:
            return
        on_cuda = torch.cuda.is_available()
        if on_cuda:
            torch.cuda.synchronize()
        self._profiler.stop()
        events = self._profiler.key_averages()
        self._profiler = None
        times = [
            (event.key, (event.self_device_time_total if on_cuda else event.self_cpu_time_total) / 1e3, event.count)
            for event in events
        ]
        times.sort(key=lambda item: -item[1])
        groups: dict[str, float] = {}
        for name, ms, _count in times:
            groups[group_of(name)] = groups.get(group_of(name), 0.0) + ms
        self.found = StepProfile(groups=groups, kernels=times[:NUM_SHOWN])
