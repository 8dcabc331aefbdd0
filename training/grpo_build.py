"""make_trainer: model, optimizer, pools, groups, evaluation and callbacks of one process of a GRPO run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import gather_object

from eval_harness.errors import UserError
from eval_harness.executor import Evaluator
from training.difficulty_pools import DifficultyPools
from training.grpo_alarms import Alarms
from training.grpo_batches import uses_master_weights
from training.grpo_callbacks import REWARD, AlarmWatcher, CheckStudent
from training.grpo_config import GrpoRunConfig
from training.grpo_engine import EngineOpener
from training.grpo_evaluation import HELD_OUT, TRAIN_TASKS, StudentCheck
from training.grpo_evaluator import num_places
from training.grpo_groups import GroupRunner
from training.grpo_plan import GrpoPlan
from training.grpo_prepare import METRICS_FILE, PreparedGrpo
from training.grpo_state import (
    ROLLOUTS_FILE,
    GrpoState,
    RolloutLog,
)
from training.sft_launch import LaunchFacts
from training.sft_model import make_lora_config
from training.trl_rollout import carrier_rows
from trajectories.store import TrajectoryStore

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from trl import GRPOConfig

    from training.grpo_trainer import GrpoTrainer


@dataclass(frozen=True)
class RunParts:
    """What a trainer is put together from."""

    config: GrpoRunConfig
    args: GRPOConfig
    launch: LaunchFacts
    prepared: PreparedGrpo
    plan: GrpoPlan
    evaluator: Evaluator
    open_engine: EngineOpener


@dataclass(frozen=True)
class RunStores:
    """Both collections of a run, open for writing in the first process."""

    rollouts: TrajectoryStore
    evaluations: TrajectoryStore


def make_trainer(parts: RunParts, stores: RunStores, checkpoint: Path | None) -> tuple[GrpoTrainer, AlarmWatcher]:
    """The trainer with everything that it needs, and the callback that tells why it stopped. Raises UserError."""
    from datasets import Dataset
    from transformers.trainer_callback import ProgressCallback

    from training.grpo_trainer import GrpoTrainer, RolloutSource
    from training.sft_callbacks import FigureBar, MetricsWriter

    config, args, prepared = parts.config, parts.args, parts.prepared
    tasks = {task.task_id: task for task in prepared.train}
    pools = DifficultyPools([task.task_id for task in prepared.train], config.pools, seed=config.seed)
    state = GrpoState(pools, Alarms(config.alarms))
    if checkpoint is not None:
        state.load(checkpoint)
    common: dict[str, Any] = {
        "evaluator": parts.evaluator,
        "tokenizer": prepared.tokenizer,
        "gather": gather_object,
        "rank": args.process_index,
        "num_processes": args.world_size,
    }
    launch = parts.launch
    runner = GroupRunner(
        config,
        tasks,
        pools,
        protocol=config.evaluator.load_protocol(),
        store=stores.rollouts,
        num_places=num_places(config.evaluator, num_processes=args.world_size, num_machines=launch.num_machines),
        **common,
    )
    sets = {HELD_OUT: prepared.held_out, TRAIN_TASKS: prepared.train[: config.evaluation.num_train_tasks]}
    check = StudentCheck(config, sets, store=stores.evaluations, **common)
    log = RolloutLog(config.out_dir / ROLLOUTS_FILE) if args.process_index == 0 else None
    watcher, checker = AlarmWatcher(state.alarms), CheckStudent(config, check, parts.open_engine)
    trainer = GrpoTrainer(
        model=_load_model(config, prepared),
        args=args,
        make_rollouts=RolloutSource(config, runner, state, open_engine=parts.open_engine, log=log),
        grpo_state=state,
        optimizer=_optimizer(config, args, launch),
        train_dataset=Dataset.from_dict({"prompt": [""] * carrier_rows(args)}),
        processing_class=prepared.tokenizer.tokenizer,
        peft_config=make_lora_config(config.lora) if config.lora else None,
        callbacks=[watcher, MetricsWriter(config.out_dir / METRICS_FILE), checker],
    )
    checker.trainer = trainer
    if not args.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(FigureBar(REWARD, "reward {:.3f}"))
    return trainer, watcher


def _load_model(config: GrpoRunConfig, prepared: PreparedGrpo) -> PreTrainedModel:
    """Weights in their type. Under ZeRO-3 every process must call it together. Raises UserError."""
    from transformers import AutoModelForCausalLM

    student = config.student
    try:
        model = AutoModelForCausalLM.from_pretrained(
            student.name_or_path,
            config=prepared.model_config,
            dtype=student.dtype,
            attn_implementation=student.attn_implementation,
            **student.model_kwargs,
        )
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"student.name_or_path={student.name_or_path}: cannot be loaded ({reason})") from None
    stated = model.generation_config.eos_token_id
    stops = [stated] if isinstance(stated, int) else list(stated or [])
    end_of_turn = end_of_turn_id(prepared)
    if end_of_turn is not None and end_of_turn not in stops:
        # engines stop at these, and TRL takes what does not end with one for cut off
        model.generation_config.eos_token_id = [end_of_turn, *stops]
    return model


def _optimizer(config: GrpoRunConfig, args: GRPOConfig, launch: LaunchFacts) -> tuple[type, dict[str, Any]] | None:
    if not uses_master_weights(config, launch):
        return None
    from training.master_adamw import MasterAdamW

    betas = (args.adam_beta1, args.adam_beta2)
    return MasterAdamW, {"lr": args.learning_rate, "betas": betas, "eps": args.adam_epsilon}


def end_of_turn_id(prepared: PreparedGrpo) -> int | None:
    """The token that ends a turn; None where the template ends one with several, or with text."""
    ids: Sequence[int] = prepared.tokenizer.end_of_turn_ids
    return ids[0] if ids else None
