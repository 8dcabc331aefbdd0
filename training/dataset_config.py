"""DatasetConfig: what goes into a dataset, and how it lies on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from training.contamination import CodeOverlapConfig
from trajectories.selection import SelectionConfig


class DatasetConfig(BaseModel):
    """What goes into a dataset."""

    model_config = ConfigDict(extra="forbid")

    name: str = "dataset"
    kind: Literal["conversations", "candidates", "candidate-sft", "preferences", "verifier"] = "conversations"
    """conversations: whole attempts, cut after their best evaluation. The others are of single candidates, a search's
    or a conversation's: a row each; request and answer of those worth imitating; pairs of a better and a worse one;
    what a soft verifier is asked about it, with the answer that the harness gives."""
    collections: list[Path] = Field(min_length=1)
    """Folders that `passwright collect` wrote."""
    out: Path | None = None
    """Default: runs/dataset/<name>."""
    selection: SelectionConfig = Field(default_factory=SelectionConfig)
    eval_tasks: list[str] = ["passbench_lite:eval"]
    """References of the tasks that students will be evaluated on; nothing of them may be trained on. []: no check."""
    contamination: Literal["fail", "drop", "report"] = "fail"
    """When a trajectory shares something with eval_tasks. fail: no dataset. drop: that trajectory is left out. report:
    it stays, and the card says so."""
    code_overlap: CodeOverlapConfig = CodeOverlapConfig()
    """When code counts as shared."""
    eval_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the tasks whose rows go to the split `validation`, for the loss during SFT; chosen by the hash of the
    task_id, so that a task stays on its side when the dataset grows."""
    format: Literal["parquet", "openai-jsonl"] = "parquet"
    """parquet: a Hugging Face dataset. openai-jsonl: lines for a fine-tuning API that speaks OpenAI's form."""
    shard_mb: float = Field(default=256.0, gt=0)
    """A file ends once its rows are so many MB of text; Parquet is smaller, since it is compressed."""
    tokenizer: str | None = None
    """Name or folder of the student's tokenizer, to count tokens with; None: not counted."""
    chat_template: str | None = None
    """Name of a template in training/templates to count tokens with; None: the one that belongs to the tokenizer."""
    preference_margin: float = Field(default=0.1, ge=0)
    """preferences: by how much of covered AS a correct candidate must be slower to count as the worse one."""
    max_pairs_per_task: int = Field(default=4, ge=1)
    """preferences: pairs with a task's best candidate."""
    num_workers: int | None = Field(default=None, ge=1)
    """Processes that read records; None: one a core, at most 8. Changes nothing in the dataset."""

    @property
    def out_dir(self) -> Path:
        return self.out or Path("runs/dataset") / self.name
