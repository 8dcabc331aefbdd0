"""run_sft: dataset -> rows of tokens -> plan -> TRL's trainer -> a student's folder; loss on the assistant's tokens.

    dataset        what `passwright dataset build` wrote
    sft_prepare    token ids and labels; rows that are too long are cut after a turn or left out, and named
    sft_plan       micro batches, checkpointed layers, steps, memory; refuses what cannot fit
    sft_trainer    trains on the rows as they are (it neither renders nor cuts anything)
    sft_export     <out>/student: weights, tokenizer, the chat template that it learnt, a card

Beside it: config.json (resolved, with hashes and versions), rows/, metrics.jsonl (a line a logged step), summary.json
(last, the mark of a finished run), checkpoints/. A run that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.model_card import render_model_card
from training.run_folder import RunFolder, checkpoint_step, last_checkpoint
from training.sft_config import CHECKPOINTS_DIR, SftRunConfig, make_trainer_arguments
from training.sft_dataset import load_sft_dataset
from training.sft_export import STUDENT_DIR, save_student, upload
from training.sft_launch import LaunchFacts, launch_from_environment
from training.sft_model import load_trainee_model, make_lora_config
from training.sft_plan import RunPlan, uses_fused_ops, uses_master_weights
from training.sft_prepare import PreparedRows, prepare_plan, prepare_rows
from training.sft_summary import SftSummary, summarize_run

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TrainerCallback
    from trl import SFTConfig

    from training.sft_trainer import StudentTrainer

__all__ = [
    "METRICS_FILE",
    "STUDENT_DIR",
    "SftRunConfig",
    "SftSummary",
    "make_trainer_arguments",
    "run_sft",
    "train_rows",
]

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"


def run_sft(config: SftRunConfig, *, resume: bool = True) -> SftSummary:
    """Train, or go on with a run that was stopped; a finished one is returned as it is.

    Raises UserError: no such dataset, an unknown trainer key, nothing to train on, a run that cannot fit, a folder of
    another configuration.
    """
    import torch

    started = time.monotonic()
    folder = RunFolder(
        config.out_dir, config, inputs=_inputs(config), ignored_fields=frozenset({"out", "hub", "device_memory_gib"})
    )
    args = make_trainer_arguments(config)
    dataset = load_sft_dataset(config.dataset)
    with args.main_process_first(local=False, desc="run folder"):
        if args.process_index == 0:
            folder.open(resume=resume)
    if folder.is_finished and resume:
        return _finished(folder, config, is_first=args.process_index == 0)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    launch = launch_from_environment(on_cpu=args.device.type == "cpu")
    rows = prepare_rows(config, args, dataset)
    logger.info("dataset %s: %s", config.dataset, rows.report.describe())
    checkpoint = last_checkpoint(folder.path / CHECKPOINTS_DIR, args.world_size) if resume else None
    trainer, plan, held_out = train_rows(config, args, rows, launch, checkpoint=checkpoint)
    save_student(trainer, rows.tokenizer, config, rows.source, end_of_turn=rows.report.end_of_turn)
    summary = summarize_run(config, trainer, plan, rows, held_out)
    summary.duration_s = time.monotonic() - started
    summary.resumed_from_step = checkpoint_step(checkpoint) if checkpoint else 0
    if trainer.is_world_process_zero():
        (folder.path / STUDENT_DIR / "README.md").write_text(
            render_model_card(config, summary.model_dump(), source=rows.source, train_batch=plan.train_batch)
        )
        folder.write_summary(summary.model_dump())
        summary = _upload(folder, config, summary)
    trainer.accelerator.wait_for_everyone()
    return summary


def train_rows(
    config: SftRunConfig,
    args: SFTConfig,
    rows: PreparedRows,
    launch: LaunchFacts,
    *,
    checkpoint: Path | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> tuple[StudentTrainer, RunPlan, dict[str, float]]:
    """Plan, load and train; returns the trainer, the plan and what evaluation at the end gave ({}: nothing held out).

    Raises UserError for a run that cannot fit.
    """
    plan = prepare_plan(config, args, launch, rows)
    for line in plan.describe():
        logger.info("%s", line)
    if config.memory == "refuse":
        plan.refuse_misfit()
    args = make_trainer_arguments(config, plan.decided())
    model = load_trainee_model(
        config, rows.source, rows.model_config, plan.shape, args=args, launch=launch, length=max(rows.report.lengths)
    )
    trainer = _make_trainer(config, args, plan, rows, model)
    for callback in callbacks:
        trainer.add_callback(callback)
    with _fused(trainer, config, plan):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        held_out = trainer.evaluate() if rows.eval is not None else {}
    return trainer, plan, held_out


def _inputs(config: SftRunConfig) -> dict[str, Path]:
    held_out = config.eval_split.dataset
    return {"dataset": config.dataset} | ({"eval_dataset": held_out} if held_out else {})


def _finished(folder: RunFolder, config: SftRunConfig, *, is_first: bool) -> SftSummary:
    logger.info("%s: finished already; choose another name or --no-resume to train again", folder.path)
    summary = SftSummary.model_validate(folder.read_summary())
    return _upload(folder, config, summary) if is_first else summary


def _upload(folder: RunFolder, config: SftRunConfig, summary: SftSummary) -> SftSummary:
    """Upload the student where the configuration says so and it has not been; a failed upload loses nothing."""
    if config.hub.repo is None or summary.hub_url:
        return summary
    summary.hub_url = upload(folder.path / STUDENT_DIR, config.hub)
    folder.write_summary(summary.model_dump())
    return summary


def _make_trainer(
    config: SftRunConfig,
    args: SFTConfig,
    plan: RunPlan,
    rows: PreparedRows,
    model: PreTrainedModel,
) -> StudentTrainer:
    from transformers.trainer_callback import ProgressCallback

    from training.master_adamw import MasterAdamW
    from training.sft_callbacks import CheckpointSomeLayers, FigureBar, MetricsWriter
    from training.sft_collator import RowCollator
    from training.sft_trainer import StudentTrainer, peak_flops

    shares_rows = plan.launch.sp_size > 1
    optimizer: dict[str, Any] = {}
    if uses_master_weights(config, plan.launch):
        betas = (args.adam_beta1, args.adam_beta2)
        optimizer["optimizer_cls_and_kwargs"] = (
            MasterAdamW,
            {"lr": args.learning_rate, "betas": betas, "eps": args.adam_epsilon},
        )
        logger.info("optimizer: AdamW with float32 master weights")
    assert rows.tokenizer.pad_token_id is not None
    trainer = StudentTrainer(
        model=model,
        args=args,
        train_dataset=rows.train,
        eval_dataset=rows.eval,
        processing_class=rows.tokenizer,
        data_collator=RowCollator(
            rows.tokenizer.pad_token_id,
            multiple_of=plan.launch.sp_size,
            with_row_lengths=not shares_rows,
        ),
        peft_config=make_lora_config(config.lora) if config.lora else None,
        callbacks=[MetricsWriter(config.out_dir / METRICS_FILE), CheckpointSomeLayers(plan.checkpointed_layers)],
        shape=plan.shape,
        peak_flops=peak_flops(args.device),
        **optimizer,
    )
    if not args.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(FigureBar("loss", "loss {:.4f}"))
    return trainer


def _fused(trainer: StudentTrainer, config: SftRunConfig, plan: RunPlan) -> contextlib.AbstractContextManager[Any]:
    from training.fused_ops import fused

    if not uses_fused_ops(config, plan.launch):
        return contextlib.nullcontext()
    model: Any = trainer.model
    return fused(model.get_base_model() if config.lora else model)
