"""GrpoSummary: what a finished GRPO run says of itself (summary.json), from its totals and what it logged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from training.grpo_config import GrpoRunConfig
from training.grpo_evaluation import HELD_OUT, TRAIN_TASKS
from training.grpo_plan import GrpoPlan
from training.sft_export import STUDENT_DIR

if TYPE_CHECKING:
    from training.grpo_trainer import GrpoTrainer

_LOTS = 10
"""Logged steps at each end of a run whose mean reward is given: one alone is noise."""


class GrpoSummary(BaseModel):
    """What a finished run says of itself (summary.json)."""

    model_config = ConfigDict(extra="forbid")

    name: str
    student_dir: str
    num_parameters: int
    num_steps: int
    first_reward: float | None
    """Mean over the first logged steps (ten, or as many as there are)."""
    last_reward: float | None
    """The same over the last ones."""
    checks: list[dict[str, float]]
    """Each evaluation of the student on the way: its step and its figures, by set."""
    totals: dict[str, float]
    """Over the run: rollouts, groups, dead and resampled groups, failures of ours, seconds."""
    planned_memory_gib: float | None
    peak_memory_gib: float | None
    """Of this process's GPU."""
    stopped_by: str | None
    """The alarm that ended training; None: it came to its end."""
    duration_s: float = 0.0
    """Of this process; a resumed run's earlier time is not in it."""
    resumed_from_step: int = 0

    def describe(self) -> str:
        """One line for people."""
        rewards = " -> ".join(
            "-" if value is None else f"{value:.3f}" for value in (self.first_reward, self.last_reward)
        )
        scores = [
            f"{name} {' -> '.join(f'{value:.3f}' for value in ends)}"
            for name in (f"{HELD_OUT}/as_covered", f"{TRAIN_TASKS}/as_covered")
            if (ends := _ends(self.checks, name))
        ]
        return f"{self.name}: {self.num_steps} steps, reward {rewards}{''.join(f', {score}' for score in scores)}"


def summarize_run(
    config: GrpoRunConfig, trainer: GrpoTrainer, plan: GrpoPlan, metrics: Path, *, stopped_by: str | None
) -> GrpoSummary:
    """The summary; duration and the step that it went on from are the caller's."""
    import torch

    logged = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.is_file() else []
    rewards = [line["rewards/total"] for line in logged if line.get("rewards/total") is not None]
    on_gpu = trainer.accelerator.device.type == "cuda"
    return GrpoSummary(
        name=config.name,
        student_dir=str(config.out_dir / STUDENT_DIR),
        num_parameters=plan.shape.num_parameters,
        num_steps=trainer.state.global_step,
        first_reward=_mean(rewards[:_LOTS]),
        last_reward=_mean(rewards[-_LOTS:]),
        checks=[_check_of(line) for line in logged if _is_check(line)],
        totals={name: float(value) for name, value in sorted(trainer.grpo_state.totals.items())},
        planned_memory_gib=plan.total_gib,
        peak_memory_gib=torch.cuda.max_memory_allocated() / float(1 << 30) if on_gpu else None,
        stopped_by=stopped_by,
    )


def _is_check(line: dict[str, Any]) -> bool:
    return any(name.startswith((f"{HELD_OUT}/", f"{TRAIN_TASKS}/")) for name in line)


def _check_of(line: dict[str, Any]) -> dict[str, float]:
    kept = ("step", "seconds/check")
    return {
        name: float(value)
        for name, value in line.items()
        if name in kept or name.startswith((f"{HELD_OUT}/", f"{TRAIN_TASKS}/"))
    }


def _ends(checks: Sequence[dict[str, float]], name: str) -> list[float]:
    values = [check[name] for check in checks if name in check]
    return [values[0], values[-1]] if values else []


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
