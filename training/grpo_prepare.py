"""What every process of a GRPO run reads before weights: tasks, tokenizer, the model's sizes, the plan; the dry run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data.passbench import load_tasks
from data.task import Task
from eval_harness.errors import UserError
from training.grpo_config import GrpoRunConfig, make_grpo_arguments
from training.grpo_evaluator import LocalRank, check_sharing
from training.grpo_plan import GrpoPlan, make_plan, measured_lines
from training.model_shape import shape_of
from training.rollout_tokens import RolloutTokenizer
from training.sft_launch import LaunchFacts
from training.sft_model import count_adapter_parameters, load_trainee_config, load_trainee_tokenizer
from trajectories.prompts import render_messages
from trajectories.tools import TOOLS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig
    from trl import GRPOConfig

METRICS_FILE = "metrics.jsonl"
_MAX_PROMPTS = 64
"""Prompts that are tokenised for the plan, spread over the tasks; longer ones of a later task end its rollouts."""


@dataclass
class PreparedGrpo:
    """Everything of a run but the weights."""

    train: list[Task]
    held_out: list[Task]
    tokenizer: RolloutTokenizer
    model_config: PreTrainedConfig
    prompt_tokens: int
    """Of the longest prompt that was looked at."""


def prepare(config: GrpoRunConfig) -> PreparedGrpo:
    """Raises UserError: no such task or model, tasks in both splits, a template that cannot be trained with."""
    config.check()
    train, held_out = load_splits(config)
    source = config.student.name_or_path
    # a marked template is needed to tell the student's tokens; load_trainee_tokenizer puts it into the tokenizer
    tokenizer = load_trainee_tokenizer(config, source)
    rollout_tokenizer = RolloutTokenizer(tokenizer, TOOLS, chat_template=str(tokenizer.chat_template))
    return PreparedGrpo(
        train=train,
        held_out=held_out,
        tokenizer=rollout_tokenizer,
        model_config=load_trainee_config(config, source),
        prompt_tokens=longest_prompt(config, [*train, *held_out], rollout_tokenizer),
    )


def load_splits(config: GrpoRunConfig) -> tuple[list[Task], list[Task]]:
    """Training and held-out tasks. Raises UserError where one is in both, by its name or by its graphs."""
    tasks = config.tasks
    train = [task for reference in tasks.train for task in load_tasks(reference)][: tasks.max_train]
    held_out = [task for reference in tasks.held_out for task in load_tasks(reference)][: tasks.max_held_out]
    names, hashes = {task.task_id for task in train}, {task.content_hash for task in train}
    both = sorted(task.task_id for task in held_out if task.task_id in names or task.content_hash in hashes)
    if both:
        raise UserError(f"tasks.held_out: {both[0]} is trained on too; leave it out of one of the two lists")
    return train, held_out


def longest_prompt(config: GrpoRunConfig, tasks: Sequence[Task], tokenizer: RolloutTokenizer) -> int:
    """Tokens of the longest prompt among some of the tasks."""
    device = config.evaluator.devices[0]
    stride = max(1, -(-len(tasks) // _MAX_PROMPTS))
    prompts = (render_messages(task, device, config.limits.max_turns, config.prompt) for task in tasks[::stride])
    return max((len(tokenizer.prompt_ids(messages)) for messages in prompts), default=0)


def plan_run(config: GrpoRunConfig, args: GRPOConfig, launch: LaunchFacts, prepared: PreparedGrpo) -> GrpoPlan:
    """The plan, and whether judges and training share a GPU. Raises UserError."""
    num_checked = len(prepared.held_out) + min(config.evaluation.num_train_tasks, len(prepared.train))
    return make_plan(
        config,
        args,
        launch,
        shape_of(prepared.model_config),
        prompt_tokens=prepared.prompt_tokens,
        adapter_parameters=count_adapter_parameters(prepared.model_config, config.lora),
        device_memory_gib=device_memory(config, launch),
        num_train_tasks=len(prepared.train),
        num_checked_tasks=num_checked,
    )


def local_ranks(launch: LaunchFacts) -> list[LocalRank]:
    """The processes of one machine."""
    count = max(1, launch.num_processes // launch.num_machines)
    return [LocalRank(index, count, None if launch.on_cpu else index) for index in range(count)]


def device_memory(config: GrpoRunConfig, launch: LaunchFacts) -> float | None:
    """GiB of one GPU: as configured, else this machine's; None on a CPU or where there is no GPU to ask."""
    if config.device_memory_gib is not None or launch.on_cpu:
        return config.device_memory_gib
    import torch

    return torch.cuda.get_device_properties(0).total_memory / float(1 << 30) if torch.cuda.is_available() else None


def dry_run(config: GrpoRunConfig, launch: LaunchFacts) -> list[str]:
    """What a launch would do, as lines for people; nothing is trained, judged or written.

    Raises UserError for what cannot work.
    """
    import torch
    import yaml

    here = {} if torch.cuda.is_available() and not launch.on_cpu else {"bf16": False, "tf32": None, "use_cpu": True}
    args = make_grpo_arguments(config, here, planned=False)
    prepared = prepare(config)
    plan = plan_run(config, args, launch, prepared)
    shared = check_sharing(config.evaluator, local_ranks(launch))
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    lines = ["configuration:", *(f"  {line}" for line in text.rstrip().splitlines()), *plan.describe()]
    if shared:
        lines.append("one GPU trains and judges: generation and evaluation take turns, their seconds add up")
    lines += measured_lines(config.out_dir / METRICS_FILE)
    if plan.device_memory_gib is None and not launch.on_cpu:
        lines.append("no GPU here to compare with: set device_memory_gib to that of yours")
    if config.memory == "refuse":
        plan.refuse_misfit()
    return lines
