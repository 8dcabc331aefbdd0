"""Configuration of the quickstart: the stages' own configurations, each reading what the one before it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.evaluate import StudentEvaluationConfig
from training.sft import SftRunConfig
from training.sft_dataset import DatasetConfig
from trajectories.collect import CollectConfig


class QuickstartConfig(BaseModel):
    """The whole loop on a few tasks. Folders follow from `out`, unless a stage names its own."""

    model_config = ConfigDict(extra="forbid")

    out: Path = Path("runs/quickstart")
    tasks: list[str] = Field(min_length=1)
    """References of tasks; teacher, student and baselines all get these."""
    max_tasks: int | None = Field(default=None, ge=1)
    device: str = "cpu"
    """Where passes run."""
    collect: CollectConfig
    dataset: DatasetConfig
    sft: SftRunConfig
    accelerate_config: Path = Path("configs/accelerate/cpu.yaml")
    evaluation: StudentEvaluationConfig
    """Of the student after SFT, and with the same numbers of the student before it."""
    baselines: list[str] = ["eager", "inductor"]
    """Measured by the same judge, through the protocol of the final verdicts."""

    @model_validator(mode="before")
    @classmethod
    def _connect_stages(cls, values: Any) -> Any:
        """What follows from elsewhere in the file needs no line of its own in a stage."""
        if not isinstance(values, dict):
            return values
        out = Path(values.get("out", cls.model_fields["out"].default))
        shared = {key: values[key] for key in ("tasks", "max_tasks", "device") if key in values}
        follows = {
            "collect": {"name": "quickstart", "out_dir": out / "collect", **shared},
            "dataset": {"name": "quickstart", "out": out / "dataset", "collections": [out / "collect"]},
            "sft": {"name": "quickstart", "out": out / "sft", "dataset": out / "dataset"},
            "evaluation": {"name": "student", "out": out / "student", "student": out / "sft" / "student", **shared},
        }
        stages = {
            stage: {**defaults, **values[stage]} if isinstance(values.get(stage), dict) else values.get(stage, defaults)
            for stage, defaults in follows.items()
        }
        return {**values, **stages}

    def evaluation_of(self, checkpoint: Path, *, name: str) -> StudentEvaluationConfig:
        """The evaluation of another checkpoint, otherwise alike."""
        return self.evaluation.model_copy(update={"name": name, "student": checkpoint, "out": self.out / name})
