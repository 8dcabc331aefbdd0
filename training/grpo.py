"""run_grpo: student + tasks -> rollouts judged by the harness -> rewards -> TRL's GRPO trainer -> a better student.

    grpo_prepare     tasks, tokenizer, sizes; grpo_plan: micro batches, evaluations, tokens, memory
    grpo_evaluator   this process's judges, apart from the GPUs that train
    grpo_groups      a step's groups: tasks from the pools, many-turn rollouts, rewards, dead groups run anew
    grpo_trainer     their columns for TRL (trl_rollout: all of its insides); pools, alarms, totals in checkpoints
    grpo_evaluation  the student on held-out tasks every N steps
    sft_export       <out>/student, as vLLM serves it

Beside it: config.json, metrics.jsonl (a line a logged step), rollouts.jsonl (a line an attempt), rollouts/ and
evaluations/ (trajectories: `passwright view`), checkpoints/, summary.json (last, the mark of a finished run). A run
that was killed goes on from its last checkpoint and forgets what came after it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from eval_harness.executor import Evaluator
from training.grpo_build import RunParts, RunStores, end_of_turn_id, make_trainer
from training.grpo_config import GrpoRunConfig, make_grpo_arguments
from training.grpo_engine import EngineOpener, engine_opener
from training.grpo_evaluator import LocalRank, check_sharing, open_evaluator
from training.grpo_prepare import METRICS_FILE, local_ranks, plan_run, prepare
from training.grpo_state import (
    EVALUATIONS_DIR,
    ROLLOUTS_DIR,
    ROLLOUTS_FILE,
    STATE_FILE,
    RolloutLog,
    forget_trajectories,
)
from training.grpo_summary import GrpoSummary, summarize_run
from training.run_folder import RunFolder, checkpoint_step, last_checkpoint
from training.sft_config import CHECKPOINTS_DIR
from training.sft_export import save_student
from training.sft_launch import launch_from_environment
from training.trl_rollout import check_trl_version
from trajectories.store import TrajectoryStore

if TYPE_CHECKING:
    from trl import GRPOConfig

__all__ = ["GrpoRunConfig", "GrpoSummary", "run_grpo"]

logger = logging.getLogger(__name__)

_PLACES_ONLY = frozenset({"out", "device_memory_gib", "memory", "num_threads"})
"""Fields that do not make it another run."""


def run_grpo(
    config: GrpoRunConfig,
    *,
    resume: bool = True,
    evaluator: Evaluator | None = None,
    open_engine: EngineOpener | None = None,
) -> GrpoSummary:
    """Train, or go on with a run that was stopped; a finished one is returned as it is. Every process calls it.

    evaluator: instead of the configured one; the caller closes it. open_engine: instead of the trainer's own model or
    vLLM. Raises UserError: configuration, model, tasks, a shared GPU, a run that cannot fit, another run in the folder.
    """
    import torch

    started = time.monotonic()
    check_trl_version()
    unplanned = make_grpo_arguments(config, planned=False)
    launch = launch_from_environment(on_cpu=unplanned.device.type == "cpu")
    prepared = prepare(config)
    plan = plan_run(config, unplanned, launch, prepared)
    shares_gpu = check_sharing(config.evaluator, local_ranks(launch)) if evaluator is None else False
    if config.memory == "refuse":
        plan.refuse_misfit()
    # only now: what was refused leaves no folder behind
    folder = _open_folder(config, unplanned, resume=resume)
    if folder.is_finished and resume:
        logger.info("%s: finished already; choose another name or --no-resume to train again", folder.path)
        return GrpoSummary.model_validate(folder.read_summary())
    for line in plan.describe() if unplanned.process_index == 0 else []:
        logger.info("%s", line)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    args = make_grpo_arguments(config, plan.decided())
    rank = LocalRank(args.local_process_index, local_ranks(launch)[0].count, args.device.index if shares_gpu else None)
    checkpoint = None
    if resume:
        checkpoint = last_checkpoint(folder.path / CHECKPOINTS_DIR, args.world_size, also=[STATE_FILE])
    with _evaluator(config, evaluator, rank, args, shares_gpu=shares_gpu) as judged_by:
        opener = open_engine or engine_opener(shared_device=f"cuda:{rank.gpu}" if shares_gpu else None)
        parts = RunParts(config, args, launch, prepared, plan, judged_by, opener)
        with _stores(config, args, checkpoint) as stores:
            trainer, watcher = make_trainer(parts, stores, checkpoint)
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    tokenizer = prepared.tokenizer.tokenizer
    save_student(trainer, tokenizer, config, config.student.name_or_path, end_of_turn=end_of_turn_id(prepared))
    summary = summarize_run(config, trainer, plan, folder.path / METRICS_FILE, stopped_by=watcher.stopped_by)
    summary.duration_s = time.monotonic() - started
    summary.resumed_from_step = checkpoint_step(checkpoint) if checkpoint else 0
    if trainer.is_world_process_zero():
        folder.write_summary(summary.model_dump())
    trainer.accelerator.wait_for_everyone()
    return summary


def _open_folder(config: GrpoRunConfig, args: GRPOConfig, *, resume: bool) -> RunFolder:
    """The run's folder, opened by the first process. Raises UserError where it holds another run."""
    student = Path(config.student.name_or_path)
    where = config.evaluator.model_copy(
        # what is judged does not depend on how many judges there are, nor on which of like machines
        update={name: type(config.evaluator).model_fields[name].get_default() for name in ("devices", "executor")}
    )
    folder = RunFolder(
        config.out_dir,
        config,
        inputs={"student": student} if student.is_dir() else {},
        ignored_fields=_PLACES_ONLY,
        identity=config.model_copy(update={"evaluator": where}),
    )
    with args.main_process_first(local=False, desc="run folder"):
        if args.process_index == 0:
            folder.open(resume=resume)
    return folder


@contextlib.contextmanager
def _evaluator(
    config: GrpoRunConfig, given: Evaluator | None, rank: LocalRank, args: GRPOConfig, *, shares_gpu: bool
) -> Iterator[Evaluator]:
    if given is not None:
        yield given
        return
    from training.gpu_turns import marked_as_yielding

    with (
        marked_as_yielding(os.getpid() if shares_gpu else None),
        open_evaluator(config.evaluator, rank, num_processes=args.world_size) as evaluator,
    ):
        yield evaluator


@contextlib.contextmanager
def _stores(config: GrpoRunConfig, args: GRPOConfig, checkpoint: Path | None) -> Iterator[RunStores]:
    """Both collections, opened by the first process, and without what came after the checkpoint."""
    stores = RunStores(*(TrajectoryStore(config.out_dir / name) for name in (ROLLOUTS_DIR, EVALUATIONS_DIR)))
    step = checkpoint_step(checkpoint) if checkpoint else 0
    with args.main_process_first(local=False, desc="trajectories"):
        if args.process_index == 0:
            for store, what in ((stores.rollouts, "rollouts"), (stores.evaluations, "evaluations")):
                store.open_for_writing({"name": config.name, "stage": "grpo", "what": what})
            # a step's rollouts are made before it, its evaluation after it
            forget_trajectories(stores.rollouts.root, step)
            forget_trajectories(stores.evaluations.root, step + 1 if checkpoint else 0)
            RolloutLog(config.out_dir / ROLLOUTS_FILE).forget_from(step)
    try:
        yield stores
    finally:
        stores.rollouts.close()
        stores.evaluations.close()
