"""SftRunConfig: one supervised run, and what becomes of `trainer:` (fields of trl.SFTConfig, which are not copied)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from eval_harness.errors import UserError
from training.sft_rows import ReasoningPolicy, TooLong
from training.student import TinyStudentConfig
from training.trainer_mapping import build_arguments, check_trainer_keys

if TYPE_CHECKING:
    from trl import SFTConfig

CHECKPOINTS_DIR = "checkpoints"

_OURS = {
    "output_dir": "out",
    "max_length": "max_length",
    "assistant_only_loss": "nothing: rows carry their own labels",
    "completion_only_loss": "nothing: rows carry their own labels",
    "chat_template_path": "student.chat_template",
    "model_init_kwargs": "student.dtype, student.attn_implementation and student.model_kwargs",
    "padding_free": "nothing: rows are never padded",
    "packing_strategy": "nothing: rows are packed whole, best fit first",
    "eval_packing": "nothing: the eval split is not packed",
    "push_to_hub": "hub.repo",
    "hub_model_id": "hub.repo",
}
"""Keys of SFTConfig that this program sets, and what to set instead."""


class StudentModel(Protocol):
    """What loading and saving a student needs to know of it; StudentSource and grpo_config.GrpoStudent say it."""

    @property
    def name_or_path(self) -> str | None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def attn_implementation(self) -> str | None: ...
    @property
    def chat_template(self) -> str | None: ...
    @property
    def rope_scaling(self) -> dict[str, Any] | None: ...
    @property
    def model_kwargs(self) -> dict[str, Any]: ...


class StudentRun(Protocol):
    """A run's configuration, as far as its student goes by it."""

    @property
    def student(self) -> StudentModel: ...
    @property
    def lora(self) -> LoraSettings | None: ...
    @property
    def out_dir(self) -> Path: ...


class StudentSource(BaseModel):
    """Which model is trained."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    name_or_path: str | None = None
    """A model's name or folder. None: a tiny student is built from the dataset, offline."""
    tiny: TinyStudentConfig = Field(default_factory=TinyStudentConfig)
    """Its sizes, when name_or_path is None."""
    dtype: str = "bfloat16"
    """Weights of a named model; transformers' own default would be float32. The tiny student is float32."""
    attn_implementation: str | None = None
    """Of a named model, such as flash_attention_2; None: the quickest of this machine's kernels (attention.py)."""
    chat_template: str | None = None
    """A template of training/templates. None: the one that writes what the model's own does (chat_templates.py)."""
    reasoning: ReasoningPolicy = "keep"
    """drop: the conversations' reasoning is left out, for a student that is to answer without any."""
    rope_scaling: dict[str, Any] | None = None
    """Put into the model's configuration: needed where max_length goes beyond the model's positions."""
    model_kwargs: dict[str, Any] = {}
    """More of from_pretrained, such as experts_implementation or revision."""


class LoraSettings(BaseModel):
    """A low-rank adapter instead of all weights; merged into them when the student is saved."""

    model_config = ConfigDict(extra="forbid")

    r: int = Field(default=32, ge=1)
    alpha: float = Field(default=64.0, gt=0)
    """The adapter is scaled by alpha / r."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: str | list[str] = "all-linear"
    """Linear layers that get one; the output layer never does."""
    target_parameters: list[str] = []
    """Parameters that are no linear layer: the stacked experts of a mixture."""


class EvalSplit(BaseModel):
    """What is held out to watch loss and token accuracy on, where the dataset has no validation split of its own."""

    model_config = ConfigDict(extra="forbid")

    fraction: float = Field(default=0.0, ge=0, lt=1)
    """Of the tasks, whole, rounded up; 0: nothing is held out."""
    dataset: Path | None = None
    """Another dataset instead, all of it."""
    seed: int = 0

    @model_validator(mode="after")
    def _one_source(self) -> EvalSplit:
        if self.fraction and self.dataset:
            raise ValueError("fraction and dataset: give one of them")
        return self


class HubSettings(BaseModel):
    """Where a finished student is uploaded; the token comes from the environment (HF_TOKEN)."""

    model_config = ConfigDict(extra="forbid")

    repo: str | None = None
    """OWNER/NAME; None: nothing is uploaded."""
    private: bool = True


class SftRunConfig(BaseModel):
    """One supervised run."""

    model_config = ConfigDict(extra="forbid")

    name: str = "sft"
    dataset: Path
    """Folder that `passwright dataset build` wrote."""
    out: Path | None = None
    """Default: runs/sft/<name>. Processes on several machines must see the same folder."""
    student: StudentSource = Field(default_factory=StudentSource)
    lora: LoraSettings | None = None
    """None: all weights are trained."""
    max_length: int | None = Field(default=None, ge=1)
    """Of a row in tokens. None: no limit."""
    too_long: TooLong = "drop"
    """What becomes of a longer row; it is named either way. cut_at_turn: ends after the last whole turn that fits."""
    min_trained_tokens: int = Field(default=1, ge=1)
    """Rows with fewer tokens to train are left out, and named."""
    train_batch: int | None = Field(default=None, ge=1)
    """Rows (packed: sequences) an optimizer step, over all processes: the accumulation steps follow. None: as `trainer`
    says."""
    eval_split: EvalSplit = Field(default_factory=EvalSplit)
    checkpointing: Literal["auto", "none", "full"] | int = "auto"
    """Layers whose activations are computed again in the backward pass: all, none, that many, or as many as the
    estimate of memory needs (auto)."""
    fused_ops: Literal["auto", "on", "off"] = "auto"
    """Norms, rotary positions and gates as one kernel each (fused_ops.py); auto: on a GPU."""
    master_weights: Literal["auto", "on", "off"] = "auto"
    """float32 copies of bfloat16 weights in the optimizer (master_adamw.py); auto: where nobody else keeps them."""
    device_memory_gib: float | None = Field(default=None, gt=0)
    """Of one GPU, for planning; None: this machine's."""
    memory: Literal["refuse", "warn"] = "refuse"
    """What becomes of a run whose estimate is above a GPU's memory."""
    num_threads: int | None = Field(default=None, ge=1)
    """Of torch on CPU; None: torch's choice."""
    hub: HubSettings = Field(default_factory=HubSettings)
    trainer: dict[str, Any] = {}
    """Goes to trl.SFTConfig untouched, but for what this program sets itself."""

    @property
    def out_dir(self) -> Path:
        return self.out or Path("runs/sft") / self.name

    @property
    def holds_out(self) -> bool:
        """Whether there are rows to evaluate on."""
        split = self.eval_split
        return bool(split.fraction or split.dataset or self.has_validation)

    @property
    def has_validation(self) -> bool:
        """Whether the dataset's folder has a validation split: it is then the one that is used."""
        return any((self.dataset / "data").glob("validation-*.parquet"))

    @property
    def packing(self) -> bool:
        return bool(self.trainer.get("packing", False))


def make_trainer_arguments(config: SftRunConfig, decided: Mapping[str, Any] | None = None) -> SFTConfig:
    """trl.SFTConfig from the trainer mapping, over it what the plan decided.

    Raises UserError for a key that it has not, or that is set elsewhere.
    """
    from trl import SFTConfig

    check_trainer_keys(config.trainer, SFTConfig, _OURS)
    if config.packing and config.max_length is None:
        raise UserError("trainer.packing: needs a length to pack to; set max_length")
    defaults: dict[str, Any] = {
        "report_to": "none",
        "save_total_limit": 2,
        # under accelerate transformers takes our log level for a wish to see no bar
        "disable_tqdm": False,
        "run_name": config.name,
        # checkpointing of this configuration decides; TRL's own default is all layers
        "gradient_checkpointing": False,
        # of the eval split: long rows one by one
        "per_device_eval_batch_size": 1,
        "eval_strategy": "epoch",
    }
    values = defaults | config.trainer | dict(decided or {})
    if not config.holds_out:
        values["eval_strategy"] = "no"
    # rows are packed and short enough already: TRL would only run its own packing or cutting over them
    values["packing"] = False
    folder = str(config.out_dir / CHECKPOINTS_DIR)
    return build_arguments(SFTConfig, values | {"output_dir": folder, "max_length": None})
