"""GrpoPlan: rollouts, micro batches, evaluations, tokens and memory of a GRPO run, decided before weights are read."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.grpo_batches import check_saves, estimate, micro_batch, own_rollouts, uses_master_weights
from training.grpo_config import GrpoRunConfig
from training.grpo_evaluator import num_places
from training.model_shape import ModelShape
from training.sft_launch import LaunchFacts
from training.sft_memory import SAFE_SHARE, MemoryEstimate, RunShape

if TYPE_CHECKING:
    from trl import GRPOConfig

_ROUND_CONTEXT = 64
_GIB = float(1 << 30)


@dataclass(frozen=True)
class GrpoPlan:
    """What a run will do."""

    config: GrpoRunConfig
    launch: LaunchFacts
    shape: ModelShape
    prompt_tokens: int
    """Of the longest prompt that was looked at."""
    micro_batch: int
    """Rollouts of one forward pass in a process."""
    checkpoints_layers: bool
    """Activations of every layer are computed again in the backward pass."""
    memory: MemoryEstimate
    vllm_gib: float
    """That a colocated vLLM holds of each GPU."""
    reference_gib: float
    """Of the reference model, which KL needs."""
    device_memory_gib: float | None
    """Of one GPU; None: none is known, so nothing is refused."""
    num_train_tasks: int = 0
    num_checked_tasks: int = 0

    @property
    def rollouts(self) -> int:
        """Attempts of one lot, over all processes, without those of replaced groups."""
        return self.config.groups * self.config.group_size

    @property
    def own_rollouts(self) -> int:
        """Of one process."""
        return self.rollouts // self.launch.num_processes

    @property
    def context_tokens(self) -> int:
        """Prompt and completion at their longest."""
        return self.prompt_tokens + self.config.rollout.max_completion_tokens

    @property
    def evaluations(self) -> int:
        """Of one lot, at most."""
        limits = self.config.limits
        return self.rollouts * min(limits.max_evaluations or limits.max_turns, limits.max_turns)

    @property
    def total_gib(self) -> float:
        return self.memory.total + self.vllm_gib + self.reference_gib

    def decided(self) -> dict[str, Any]:
        """Fields of trl.GRPOConfig that follow from it."""
        lot = self.own_rollouts // self.micro_batch
        fields: dict[str, Any] = {
            "per_device_train_batch_size": self.micro_batch,
            "steps_per_generation": lot,
            "gradient_accumulation_steps": lot // self.config.updates_per_rollout,
            "gradient_checkpointing": self.checkpoints_layers,
        }
        if self.config.uses_vllm and "vllm_max_model_length" not in self.config.trainer:
            rounded = -(-self.context_tokens // _ROUND_CONTEXT) * _ROUND_CONTEXT
            asked = self.config.sampling.max_context or rounded
            fields["vllm_max_model_length"] = min(rounded, asked, self.shape.max_positions)
        return fields

    def describe(self) -> list[str]:
        """Lines for people."""
        config, launch = self.config, self.launch
        places = num_places(config.evaluator, num_processes=launch.num_processes, num_machines=launch.num_machines)
        each_s = config.evaluator.assumed_evaluation_s
        took = f"{self.evaluations * each_s / places:.0f} s at most" if places else "as quick as the service is"
        limit = "" if self.device_memory_gib is None else f" of {self.device_memory_gib:.1f} GiB"
        beside = [("vLLM", self.vllm_gib), ("reference model", self.reference_gib)]
        more = "".join(f", {name} {gib:.1f}" for name, gib in beside if gib)
        fields = self.decided()
        return [
            f"launch: {launch.describe()}",
            f"model: {self.shape.model_type}, {self.shape.num_parameters / 1e9:.3f} B parameters, "
            f"{self.shape.max_positions} positions; {'LoRA' if config.lora else 'all weights'} trained",
            f"tasks: {self.num_train_tasks} to train on, {self.num_checked_tasks} to evaluate on "
            f"{_every(config.evaluation.every_steps)}",
            f"rollouts: {self.rollouts} = {config.groups} groups of {config.group_size}, {self.own_rollouts} a process"
            f"; {config.limits.max_turns} turns, {config.rollout.max_new_tokens} tokens a turn, "
            f"{config.rollout.max_completion_tokens} in all, after a prompt of up to {self.prompt_tokens}",
            f"optimizer steps: {config.trainer.get('max_steps')}, {config.updates_per_rollout} for each lot of rollouts"
            f"; {self.micro_batch} rollouts a micro batch x {fields['gradient_accumulation_steps']} accumulated x "
            f"{launch.num_processes} in parallel",
            f"evaluations: {self.evaluations} a lot at most (and those of groups without signal, up to "
            f"{config.max_resamples} times), on {places or 'unknown'} judge place(s); at {each_s:g} s each {took}",
            f"tokens: {self.rollouts * self.context_tokens:,} a lot at most, of them "
            f"{self.rollouts * config.rollout.max_completion_tokens:,} generated or read from the environment",
            f"memory of a GPU, estimated: {self.total_gib:.1f} GiB{limit}: training {self.memory.describe()}{more}",
        ]

    def refuse_misfit(self) -> None:
        """Raise UserError, with what to change, if a GPU's memory cannot hold the run."""
        limit = self.device_memory_gib
        if limit is None or self.total_gib <= limit:
            return
        raise UserError(
            f"the run needs about {self.total_gib:.0f} GiB on each GPU and it has {limit:.0f} (training "
            f"{self.memory.total:.0f}, vLLM {self.vllm_gib:.0f}, reference model {self.reference_gib:.0f}); lower "
            "trainer.vllm_gpu_memory_utilization or rollout.max_completion_tokens, use lora: {} or a sharded launch "
            "(configs/accelerate/zero3.yaml), or a vLLM server; memory: warn would try all the same"
        )


def make_plan(
    config: GrpoRunConfig,
    args: GRPOConfig,
    launch: LaunchFacts,
    shape: ModelShape,
    *,
    prompt_tokens: int,
    adapter_parameters: int = 0,
    device_memory_gib: float | None = None,
    num_train_tasks: int = 0,
    num_checked_tasks: int = 0,
) -> GrpoPlan:
    """Raises UserError for groups that the processes cannot share, and for rollouts beyond the model's positions."""
    own = own_rollouts(config, launch)
    check_saves(config, args)
    context = prompt_tokens + config.rollout.max_completion_tokens
    if context > shape.max_positions:
        raise UserError(
            f"a prompt of {prompt_tokens} tokens and rollout.max_completion_tokens="
            f"{config.rollout.max_completion_tokens} are beyond the model's {shape.max_positions} positions; lower "
            "it or prompt.max_chars, or set student.rope_scaling"
        )
    weight_bytes = 2 if config.student.dtype in ("bfloat16", "float16") else 4
    base = RunShape(
        tokens=context,
        trained_share=config.rollout.max_completion_tokens / context,
        fused=False,
        weight_bytes=weight_bytes,
        master_weights=uses_master_weights(config, launch),
        adapter_parameters=adapter_parameters,
    )
    vllm_gib = 0.0
    if config.uses_vllm and config.vllm_mode == "colocate" and device_memory_gib is not None:
        vllm_gib = args.vllm_gpu_memory_utilization * device_memory_gib
    has_reference = args.beta > 0 and config.lora is None
    reference_gib = weight_bytes * shape.num_parameters / _GIB if has_reference else 0.0
    room = None if device_memory_gib is None else SAFE_SHARE * device_memory_gib - vllm_gib - reference_gib
    micro, checkpoints = micro_batch(config, args, launch, shape, base, own // config.updates_per_rollout, room)
    return GrpoPlan(
        config=config,
        launch=launch,
        shape=shape,
        prompt_tokens=prompt_tokens,
        micro_batch=micro,
        checkpoints_layers=checkpoints,
        memory=estimate(shape, launch, base, micro, checkpoints),
        vllm_gib=vllm_gib,
        reference_gib=reference_gib,
        device_memory_gib=device_memory_gib,
        num_train_tasks=num_train_tasks,
        num_checked_tasks=num_checked_tasks,
    )


def measured_lines(metrics_file: Path, last: int = 20) -> list[str]:
    """What an earlier run's logged steps took, for the dry run; empty without one."""
    if not metrics_file.is_file():
        return []
    lines = [json.loads(line) for line in metrics_file.read_text().splitlines()]
    steps = [line for line in lines if "seconds/rollout" in line][-last:]
    names = ("rollout", "generation", "evaluation", "training")
    found = {name: [line[f"seconds/{name}"] for line in steps if f"seconds/{name}" in line] for name in names}
    shown = ", ".join(f"{name} {statistics.median(values):.1f} s" for name, values in found.items() if values)
    return [f"measured, median of the last {len(steps)} lots of {metrics_file}: {shown}"] if shown else []


def _every(steps: int | None) -> str:
    return "never" if steps is None else f"every {steps} steps"
