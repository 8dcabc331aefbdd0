"""SftSummary: what a finished supervised run says of itself (summary.json), read from what the trainer logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from training.sft_config import SftRunConfig
from training.sft_export import STUDENT_DIR
from training.sft_model import UNTRAINED_DIR
from training.sft_plan import RunPlan
from training.sft_prepare import PreparedRows
from training.sft_rows import LengthReport

if TYPE_CHECKING:
    from training.sft_trainer import StudentTrainer


class SftSummary(BaseModel):
    """What a finished run says of itself (summary.json)."""

    model_config = ConfigDict(extra="forbid")

    name: str
    student_dir: str
    untrained_dir: str | None
    """The tiny student before training, to compare with; None for a named model."""
    num_parameters: int
    num_steps: int
    num_epochs: float
    first_loss: float | None
    """Mean over the first logged interval."""
    last_loss: float | None
    last_token_accuracy: float | None
    """Share of trained tokens that were the most likely one, over the last logged interval."""
    eval_loss: float | None = None
    """Of the held-out rows, a mean over their trained tokens; None: nothing is held out."""
    eval_token_accuracy: float | None = None
    lengths: LengthReport
    eval_lengths: LengthReport | None = None
    tokens_per_s: float | None = None
    """Over the last logged interval, all processes together."""
    mfu: float | None = None
    peak_memory_gib: float | None = None
    """Of the GPU that held most."""
    planned_memory_gib: float | None = None
    """What the plan had estimated."""
    hub_url: str | None = None
    duration_s: float
    """Of this process; a resumed run's earlier time is not in it."""
    resumed_from_step: int = 0


def summarize_run(
    config: SftRunConfig, trainer: StudentTrainer, plan: RunPlan, rows: PreparedRows, held_out: dict[str, float]
) -> SftSummary:
    """The summary; duration and the step that it went on from are the caller's."""
    logged: list[dict[str, Any]] = [entry for entry in trainer.state.log_history if "loss" in entry]
    last: dict[str, Any] = logged[-1] if logged else {}
    is_tiny = config.student.name_or_path is None
    return SftSummary(
        name=config.name,
        student_dir=str(config.out_dir / STUDENT_DIR),
        untrained_dir=str(config.out_dir / UNTRAINED_DIR) if is_tiny else None,
        num_parameters=plan.shape.num_parameters,
        num_steps=trainer.state.global_step,
        num_epochs=trainer.state.epoch or 0.0,
        first_loss=logged[0]["loss"] if logged else None,
        last_loss=last.get("loss"),
        last_token_accuracy=last.get("mean_token_accuracy"),
        eval_loss=held_out.get("eval_loss"),
        eval_token_accuracy=held_out.get("eval_mean_token_accuracy"),
        lengths=rows.report,
        eval_lengths=rows.eval_report,
        tokens_per_s=last.get("tokens_per_s"),
        mfu=last.get("mfu"),
        peak_memory_gib=last.get("peak_memory_gib"),
        planned_memory_gib=plan.memory.total,
        duration_s=0.0,
    )
