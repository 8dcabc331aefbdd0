"""RunPlan: micro batches, checkpointed layers, steps and memory of a run, decided before weights are read."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.model_shape import ModelShape
from training.sft_config import SftRunConfig
from training.sft_launch import LaunchFacts
from training.sft_memory import (
    MemoryEstimate,
    RunShape,
    estimate_memory,
    fewest_checkpointed,
    ways_to_fit,
)

if TYPE_CHECKING:
    from trl import SFTConfig

logger = logging.getLogger(__name__)

MAX_JOINED_TOKENS = 65536
"""Rows are joined to micro batches up to here when train_batch leaves it open: above, kernels are no quicker."""
MAX_ROWS = 1024
"""Of a micro batch, where rows are not known."""
DEFAULT_TRAINED_SHARE = 0.35
"""Of tokens, where they could not be counted."""


@dataclass(frozen=True)
class RunPlan:
    """What a run will do."""

    launch: LaunchFacts
    shape: ModelShape
    run_shape: RunShape
    micro_batch: int
    """Rows of one forward pass in a process."""
    accumulation: int
    num_sequences: int | None
    """Rows, packed: sequences; None where they were not counted."""
    steps_per_epoch: int | None
    num_steps: int | None
    memory: MemoryEstimate
    device_memory_gib: float | None
    """Of one GPU; None: none is known, so nothing is refused."""

    @property
    def train_batch(self) -> int:
        """Rows an optimizer step, over all processes."""
        return self.micro_batch * self.accumulation * self.launch.data_parallel

    @property
    def checkpointed_layers(self) -> int:
        return self.run_shape.checkpointed_layers

    def decided(self) -> dict[str, Any]:
        """Fields of trl.SFTConfig that follow from it."""
        return {
            "per_device_train_batch_size": self.micro_batch,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_checkpointing": self.checkpointed_layers > 0,
        }

    def describe(self) -> list[str]:
        """Lines for people."""
        steps = "unknown" if self.num_steps is None else f"{self.num_steps} ({self.steps_per_epoch} an epoch)"
        layers = f"{self.checkpointed_layers} of {self.shape.num_layers} layers"
        limit = "" if self.device_memory_gib is None else f" of {self.device_memory_gib:.1f} GiB"
        return [
            f"launch: {self.launch.describe()}",
            f"model: {self.shape.model_type}, {self.shape.num_parameters / 1e9:.3f} B parameters, "
            f"{self.shape.max_positions} positions",
            f"train batch: {self.train_batch} = {self.micro_batch} a micro batch x {self.accumulation} accumulated "
            f"x {self.launch.data_parallel} in parallel; at most {self.run_shape.tokens} tokens a micro batch",
            f"steps: {steps}",
            f"checkpointing: {layers}",
            f"memory of a GPU, estimated: {self.memory.describe()}{limit}",
        ]

    def refuse_misfit(self) -> None:
        """Raise UserError, with what to change, if a GPU's memory cannot hold the run."""
        limit = self.device_memory_gib
        if limit is None or self.memory.total <= limit:
            return
        ways = ways_to_fit(self.shape, self.launch, self.run_shape, limit)
        cure = f"what would fit: {'; '.join(ways)}" if ways else "use more GPUs, LoRA (lora: {}), or a smaller model"
        raise UserError(
            f"the run needs about {self.memory.total:.0f} GiB on each GPU and it has {limit:.0f} "
            f"({self.memory.describe()}); {cure}; memory: warn would try all the same"
        )


def make_plan(
    config: SftRunConfig,
    args: SFTConfig,
    launch: LaunchFacts,
    shape: ModelShape,
    *,
    lengths: Sequence[int] | None,
    trained_share: float | None,
    adapter_parameters: int = 0,
    device_memory_gib: float | None = None,
) -> RunPlan:
    """lengths: tokens of each row (packed: sequence); None where they could not be counted: all are max_length.

    Raises UserError for a train batch that the processes cannot share.
    """
    sizes = [config.max_length or shape.max_positions] * MAX_ROWS if lengths is None else sorted(lengths, reverse=True)
    base = RunShape(
        tokens=sizes[0],
        trained_share=DEFAULT_TRAINED_SHARE if trained_share is None else trained_share,
        fused=uses_fused_ops(config, launch),
        weight_bytes=2 if config.student.dtype in ("bfloat16", "float16") and config.student.name_or_path else 4,
        master_weights=config.master_weights != "off",
        adapter_parameters=adapter_parameters,
        offload_activations=bool(config.trainer.get("activation_offloading", False)),
    )
    micro, accumulation = _batch(config, args, launch, shape, base, sizes, device_memory_gib)
    joined = replace(base, tokens=_joined(sizes, micro))
    layers = _checkpointed(config, launch, shape, joined, device_memory_gib)
    run_shape = replace(joined, checkpointed_layers=layers)
    num_sequences = None if lengths is None else len(lengths)
    per_epoch = num_steps = None
    if num_sequences is not None:
        per_epoch = math.ceil(math.ceil(num_sequences / (micro * launch.data_parallel)) / accumulation)
        num_steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
    return RunPlan(
        launch=launch,
        shape=shape,
        run_shape=run_shape,
        micro_batch=micro,
        accumulation=accumulation,
        num_sequences=num_sequences,
        steps_per_epoch=per_epoch,
        num_steps=num_steps,
        memory=estimate_memory(shape, launch, run_shape),
        device_memory_gib=device_memory_gib,
    )


def uses_fused_ops(config: SftRunConfig, launch: LaunchFacts) -> bool:
    """Whether layers run with fused_ops."""
    return config.fused_ops == "on" or (config.fused_ops == "auto" and not launch.on_cpu)


def uses_master_weights(config: SftRunConfig, launch: LaunchFacts) -> bool:
    """Whether our optimizer keeps float32 master weights: nobody else does, and all weights are trained."""
    if config.master_weights == "auto":
        is_plain = launch.sharding == "none" and config.lora is None
        return is_plain and config.student.dtype == "bfloat16" and bool(config.student.name_or_path)
    return config.master_weights == "on"


def _batch(
    config: SftRunConfig,
    args: SFTConfig,
    launch: LaunchFacts,
    shape: ModelShape,
    base: RunShape,
    sizes: Sequence[int],
    memory_gib: float | None,
) -> tuple[int, int]:
    """(rows of a micro batch, accumulation steps)."""
    given: Mapping[str, Any] = config.trainer
    if config.train_batch is None:
        micro = args.per_device_train_batch_size
        if launch.sp_size > 1 and micro != 1:
            raise UserError("Ulysses takes one row at a time; set trainer.per_device_train_batch_size=1")
        return micro, args.gradient_accumulation_steps
    if "gradient_accumulation_steps" in given:
        raise UserError("trainer.gradient_accumulation_steps: follows from train_batch; remove one of them")
    each, rest = divmod(config.train_batch, launch.data_parallel)
    if rest or not each:
        raise UserError(
            f"train_batch={config.train_batch}: cannot be shared by {launch.data_parallel} rows in parallel; "
            f"give a multiple of {launch.data_parallel}"
        )
    if "per_device_train_batch_size" in given:
        micro = args.per_device_train_batch_size
        if each % micro:
            raise UserError(
                f"train_batch={config.train_batch}: {each} rows a process are not whole micro batches of {micro}; "
                "change trainer.per_device_train_batch_size"
            )
        return micro, each // micro
    micro = 1
    if launch.sp_size == 1 and not launch.on_cpu and memory_gib is not None:
        for candidate in range(2, each + 1):
            joined = replace(base, tokens=_joined(sizes, candidate))
            if joined.tokens > MAX_JOINED_TOKENS:
                break
            if each % candidate == 0 and fewest_checkpointed(shape, launch, joined, memory_gib) == 0:
                micro = candidate
    return micro, each // micro


def _joined(sizes: Sequence[int], num_rows: int) -> int:
    """Tokens of the largest micro batch: the longest rows together."""
    return sum(sizes[:num_rows])


def _checkpointed(
    config: SftRunConfig, launch: LaunchFacts, shape: ModelShape, run: RunShape, memory_gib: float | None
) -> int:
    if "gradient_checkpointing" in config.trainer:
        if config.checkpointing != "auto":
            raise UserError("trainer.gradient_checkpointing: `checkpointing` says it already; remove one of them")
        return shape.num_layers if config.trainer["gradient_checkpointing"] else 0
    if isinstance(config.checkpointing, int):
        return max(0, min(config.checkpointing, shape.num_layers))
    if config.checkpointing == "none":
        return 0
    if config.checkpointing == "full" or run.offload_activations:
        return shape.num_layers
    if launch.on_cpu:
        return 0
    if memory_gib is None:
        return shape.num_layers
    fewest = fewest_checkpointed(shape, launch, run, memory_gib)
    return shape.num_layers if fewest is None else fewest


def device_memory(config: SftRunConfig, launch: LaunchFacts) -> float | None:
    """GiB of one GPU: as configured, else this machine's; None on a CPU or where there is no GPU to ask."""
    if config.device_memory_gib is not None:
        return config.device_memory_gib
    import torch

    if launch.on_cpu or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_properties(0).total_memory / float(1 << 30)
