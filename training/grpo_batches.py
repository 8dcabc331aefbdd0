"""How the rollouts of a process become micro batches: what divides what, what fits into memory, where it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eval_harness.errors import UserError
from training.grpo_config import GrpoRunConfig
from training.model_shape import ModelShape
from training.sft_launch import LaunchFacts
from training.sft_memory import MemoryEstimate, RunShape, estimate_memory

if TYPE_CHECKING:
    from trl import GRPOConfig

MAX_MICRO_TOKENS = 65_536
"""Of a micro batch when per_device_train_batch_size is left open: above, kernels are no quicker."""
_MICRO_WITHOUT_GPU = 4


def own_rollouts(config: GrpoRunConfig, launch: LaunchFacts) -> int:
    if launch.sp_size > 1:
        raise UserError("GRPO has no sequence parallelism; launch it with a file that has no sp_size")
    if config.groups % launch.num_processes:
        raise UserError(
            f"groups={config.groups}: each of {launch.num_processes} processes gets whole groups; give a multiple of "
            f"{launch.num_processes}"
        )
    own = config.groups // launch.num_processes * config.group_size
    if own % config.updates_per_rollout:
        raise UserError(
            f"updates_per_rollout={config.updates_per_rollout}: {own} rollouts a process cannot be cut into so many; "
            "change it, groups or group_size"
        )
    return own


def check_saves(config: GrpoRunConfig, args: GRPOConfig) -> None:
    """A checkpoint in the middle of a lot could not be gone on from exactly: its rollouts are not stored as tensors."""
    cycle = config.updates_per_rollout * args.num_iterations
    if args.save_strategy == "steps" and args.save_steps % cycle:
        raise UserError(
            f"trainer.save_steps={args.save_steps:g}: a lot of rollouts lasts {cycle} steps, and a resume would lose "
            f"the rest of one; give a multiple of {cycle}"
        )


def micro_batch(
    config: GrpoRunConfig,
    args: GRPOConfig,
    launch: LaunchFacts,
    shape: ModelShape,
    base: RunShape,
    own: int,
    room_gib: float | None,
) -> tuple[int, bool]:
    """(rollouts of a forward pass, whether layers are checkpointed). own: rollouts of one optimizer step."""
    asked = config.trainer.get("gradient_checkpointing")
    choices: Sequence[bool] = (False, True) if asked is None else (bool(asked),)
    if "per_device_train_batch_size" in config.trainer:
        micro = int(config.trainer["per_device_train_batch_size"])
        if own % micro:
            raise UserError(
                f"trainer.per_device_train_batch_size={micro}: {own} rollouts of a process and step are not whole "
                f"micro batches of {micro}; give a divisor of {own}"
            )
        fitting = [each for each in choices if _fits(shape, launch, base, micro, each, room_gib)]
        return micro, fitting[0] if fitting else choices[-1]
    divisors = [size for size in range(own, 0, -1) if own % size == 0]
    if launch.on_cpu or room_gib is None:
        return next(size for size in divisors if size <= _MICRO_WITHOUT_GPU), choices[0]
    for checkpoints in choices:
        for size in divisors:
            is_small = size == 1 or size * base.tokens <= MAX_MICRO_TOKENS
            if is_small and _fits(shape, launch, base, size, checkpoints, room_gib):
                return size, checkpoints
    return 1, choices[-1]


def _fits(
    shape: ModelShape, launch: LaunchFacts, base: RunShape, micro: int, checkpoints: bool, room: float | None
) -> bool:
    return room is None or estimate(shape, launch, base, micro, checkpoints).total <= room


def estimate(shape: ModelShape, launch: LaunchFacts, base: RunShape, micro: int, checkpoints: bool) -> MemoryEstimate:
    layers = shape.num_layers if checkpoints else 0
    return estimate_memory(shape, launch, replace(base, tokens=base.tokens * micro, checkpointed_layers=layers))


def uses_master_weights(config: GrpoRunConfig, launch: LaunchFacts) -> bool:
    """Whether our optimizer keeps float32 master weights: nobody else does, and all weights are trained."""
    if config.master_weights == "auto":
        return launch.sharding == "none" and config.lora is None and config.student.dtype == "bfloat16"
    return config.master_weights == "on"
