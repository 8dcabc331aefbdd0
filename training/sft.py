"""run_sft: dataset -> rows of tokens -> TRL's SFTTrainer -> a student's folder. Loss on the assistant's tokens only.

    dataset        what `passwright dataset build` wrote
    sft_rows       token ids and labels; rows that are too long are named and left out
    SFTTrainer     trains on them as they are (it neither renders nor cuts anything)
    <out>/student  weights, tokenizer and the chat template that it learnt

Beside it: config.json (resolved, with hashes and versions), metrics.jsonl (a line a logged step), summary.json (last,
the mark of a finished run), checkpoints/. A run that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from eval_harness.errors import UserError
from training.chat_tokens import has_generation_marks, load_template
from training.run_folder import RunFolder
from training.sft_dataset import load_sft_dataset
from training.sft_rows import LengthReport, render_texts, tokenize_rows
from training.student import TinyStudentConfig, build_tiny_student

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import SFTConfig, SFTTrainer

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
STUDENT_DIR = "student"
UNTRAINED_DIR = "untrained"
CHECKPOINTS_DIR = "checkpoints"

_OURS = {
    "output_dir": "out",
    "max_length": "max_length",
    "assistant_only_loss": "nothing: rows carry their own labels",
    "completion_only_loss": "nothing: rows carry their own labels",
    "chat_template_path": "student.chat_template",
    "model_init_kwargs": "student.dtype and student.attn_implementation",
}
"""Keys of SFTConfig that this module sets, and what to set instead."""


class StudentSource(BaseModel):
    """Which model is trained."""

    model_config = ConfigDict(extra="forbid")

    name_or_path: str | None = None
    """A model's name or folder. None: a tiny student is built from the dataset, offline."""
    tiny: TinyStudentConfig = Field(default_factory=TinyStudentConfig)
    """Its sizes, when name_or_path is None."""
    dtype: str = "bfloat16"
    """Weights of a named model; transformers' own default would be float32. The tiny student is float32."""
    attn_implementation: str | None = None
    """Of a named model, such as flash_attention_2; None: transformers' choice."""
    chat_template: str | None = None
    """A template of training/templates. None: the model's own if it has generation marks, else TRL's marked copy."""


class SftRunConfig(BaseModel):
    """One supervised run."""

    model_config = ConfigDict(extra="forbid")

    name: str = "sft"
    dataset: Path
    """Folder that `passwright dataset build` wrote."""
    out: Path | None = None
    """Default: runs/sft/<name>."""
    student: StudentSource = Field(default_factory=StudentSource)
    max_length: int | None = Field(default=None, ge=1)
    """Rows of more tokens are left out and named, never cut. None: no limit."""
    num_threads: int | None = Field(default=None, ge=1)
    """Of torch on CPU; None: torch's choice."""
    trainer: dict[str, Any] = {}
    """Goes to trl.SFTConfig untouched."""

    @property
    def out_dir(self) -> Path:
        return self.out or Path("runs/sft") / self.name


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
    lengths: LengthReport
    duration_s: float
    """Of this process; a resumed run's earlier time is not in it."""
    resumed_from_step: int = 0


def run_sft(config: SftRunConfig, *, resume: bool = True) -> SftSummary:
    """Train, or go on with a run that was stopped; a finished one is returned as it is.

    Raises UserError: no such dataset, an unknown trainer key, nothing to train on, a folder of another configuration.
    """
    import torch

    started = time.monotonic()
    folder = RunFolder(config.out_dir, config, inputs={"dataset": config.dataset})
    args = make_trainer_arguments(config)
    dataset = load_sft_dataset(config.dataset)
    if args.process_index == 0:
        folder.open(resume=resume)
    if folder.is_finished and resume:
        logger.info("%s: finished already; choose another name or --no-resume to train again", folder.path)
        return SftSummary.model_validate(folder.read_summary())
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    with args.main_process_first():
        model, tokenizer = load_trainee(config, dataset)
    rows, lengths = tokenize_rows(
        dataset, tokenizer, max_length=config.max_length, show_progress=not args.disable_tqdm
    )
    logger.info("dataset %s: %s", config.dataset, lengths.describe())
    num_parameters = model.num_parameters()  # before a trainer shards it
    trainer = _make_trainer(model, tokenizer, args, rows, folder.path / METRICS_FILE)
    checkpoint = _last_checkpoint(folder.path / CHECKPOINTS_DIR) if resume else None
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(str(folder.path / STUDENT_DIR))
    summary = _summarize(config, folder, trainer, num_parameters, lengths, time.monotonic() - started, checkpoint)
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(folder.path / STUDENT_DIR)
        folder.write_summary(summary.model_dump())
    trainer.accelerator.wait_for_everyone()
    return summary


def make_trainer_arguments(config: SftRunConfig) -> SFTConfig:
    """trl.SFTConfig from the trainer mapping. Raises UserError for a key that it has not, or that is set elsewhere."""
    from trl import SFTConfig

    known = [field.name for field in dataclasses.fields(SFTConfig) if field.init]
    for key in config.trainer:
        if key in _OURS:
            raise UserError(f"trainer.{key}: set by this program; instead set {_OURS[key]}")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "remove it"
            raise UserError(f"trainer.{key}: trl.SFTConfig has no such field; {hint}")
    packing = bool(config.trainer.get("packing", False))
    if packing and config.max_length is None:
        raise UserError("trainer.packing: needs a length to pack to; set max_length")
    # under accelerate transformers takes our log level for a wish to see no bar
    defaults: dict[str, Any] = {"report_to": "none", "save_total_limit": 2, "disable_tqdm": False}
    values = defaults | config.trainer
    try:
        return SFTConfig(
            output_dir=str(config.out_dir / CHECKPOINTS_DIR),
            # rows are short enough already; a limit here would only run TRL's cutting over them
            max_length=config.max_length if packing else None,
            **values,
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"trainer: {' '.join(str(error).split())}; correct that field of trl.SFTConfig") from None


def load_trainee(config: SftRunConfig, dataset: Dataset) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model before training and its tokenizer, whose chat template has generation marks."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = config.student
    if source.name_or_path is None:
        tiny = source.tiny
        if source.chat_template is not None:
            tiny = tiny.model_copy(update={"chat_template": source.chat_template})
        texts = render_texts(dataset, load_template(tiny.chat_template))
        return build_tiny_student(texts, tiny, config.out_dir / UNTRAINED_DIR)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.name_or_path)
        model = AutoModelForCausalLM.from_pretrained(
            source.name_or_path, dtype=source.dtype, attn_implementation=source.attn_implementation
        )
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"student.name_or_path={source.name_or_path}: cannot be loaded ({reason})") from None
    tokenizer.chat_template = _marked_template(tokenizer, source)
    return model, tokenizer


def _marked_template(tokenizer: PreTrainedTokenizerBase, source: StudentSource) -> str:
    if source.chat_template is not None:
        return load_template(source.chat_template)
    if has_generation_marks(tokenizer.chat_template):
        return tokenizer.chat_template
    from trl.chat_template_utils import get_training_chat_template

    try:
        return get_training_chat_template(tokenizer)
    except ValueError:
        raise UserError(
            f"student.name_or_path={source.name_or_path}: its chat template has no generation marks and TRL knows no "
            "marked copy of it; set student.chat_template, for example qwen3_style"
        ) from None


def _make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    args: SFTConfig,
    rows: Dataset,
    metrics_path: Path,
) -> SFTTrainer:
    from transformers.trainer_callback import ProgressCallback
    from trl import SFTTrainer

    from training.sft_callbacks import LossBar, MetricsWriter

    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=[MetricsWriter(metrics_path)],
    )
    if not args.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(LossBar())
    return trainer


def _last_checkpoint(folder: Path) -> Path | None:
    from transformers.trainer_utils import get_last_checkpoint

    found = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    return Path(found) if found else None


def _summarize(
    config: SftRunConfig,
    folder: RunFolder,
    trainer: SFTTrainer,
    num_parameters: int,
    lengths: LengthReport,
    duration_s: float,
    checkpoint: Path | None,
) -> SftSummary:
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    is_tiny = config.student.name_or_path is None
    return SftSummary(
        name=config.name,
        student_dir=str(folder.path / STUDENT_DIR),
        untrained_dir=str(folder.path / UNTRAINED_DIR) if is_tiny else None,
        num_parameters=num_parameters,
        num_steps=trainer.state.global_step,
        num_epochs=trainer.state.epoch or 0.0,
        first_loss=logged[0]["loss"] if logged else None,
        last_loss=logged[-1]["loss"] if logged else None,
        last_token_accuracy=logged[-1].get("mean_token_accuracy") if logged else None,
        lengths=lengths,
        duration_s=duration_s,
        resumed_from_step=int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0,
    )
