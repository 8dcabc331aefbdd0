"""GrpoRunConfig: one GRPO run, and what becomes of `trainer:` (fields of trl.GRPOConfig, which are not copied)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from eval_harness.errors import UserError
from eval_harness.presets import load_protocol
from training.credit import CreditConfig
from training.difficulty_pools import PoolConfig
from training.grpo_alarms import AlarmConfig
from training.grpo_presets import LossPreset, trainer_defaults
from training.grpo_settings import EvaluationSettings, EvaluatorSettings, GrpoStudent, GrpoTasks
from training.rewards import RewardConfig, check_reward_protocol
from training.rollouts import RolloutLimits
from training.sft_config import CHECKPOINTS_DIR, LoraSettings
from training.student_policy import SamplingConfig
from training.trainer_mapping import build_arguments, check_trainer_keys
from trajectories.limits import AgentLimits
from trajectories.prompts import PromptConfig

if TYPE_CHECKING:
    from trl import GRPOConfig

_OURS = {
    "output_dir": "out",
    "num_generations": "group_size",
    "num_generations_eval": "evaluation.num_attempts",
    "generation_batch_size": "groups",
    "steps_per_generation": "groups and updates_per_rollout",
    "gradient_accumulation_steps": "groups, group_size and per_device_train_batch_size: it follows from them",
    "max_completion_length": "rollout.max_completion_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "generation_kwargs": "sampling",
    "model_init_kwargs": "student.dtype, student.attn_implementation and student.model_kwargs",
    "chat_template_kwargs": "student.chat_template",
    "max_tool_calling_iterations": "limits.max_turns",
    "reward_weights": "reward.weights",
    "multi_objective_aggregation": "reward.weights: its parts are one reward",
    "eval_strategy": "evaluation.every_steps",
    "eval_steps": "evaluation.every_steps",
    "do_eval": "evaluation.every_steps",
    "num_train_epochs": "max_steps: tasks are drawn without end",
    "log_completions": "nothing: every rollout is stored as a trajectory",
    "use_transformers_continuous_batching": "use_vllm: the transformers engine here is our own",
    "vllm_structured_outputs_regex": "nothing: answers are free text",
    "remove_unused_columns": "nothing: tasks do not come from the dataset that TRL iterates",
    "shuffle_dataset": "pools",
    "push_to_hub": "nothing here; upload <out>/student",
}
"""Keys of GRPOConfig that this program sets or has no use for, and what to set instead."""


class GrpoRunConfig(BaseModel):
    """One GRPO run."""

    model_config = ConfigDict(extra="forbid")

    name: str = "grpo"
    out: Path | None = None
    """Default: runs/grpo/<name>. Processes on several machines must see the same folder."""
    student: GrpoStudent
    lora: LoraSettings | None = None
    """None: all weights are trained."""
    tasks: GrpoTasks
    groups: int = Field(default=8, ge=1)
    """Tasks whose attempts are run at a time, over all processes; each process gets whole groups."""
    group_size: int = Field(default=8, ge=2)
    """Attempts at one task: they share the baseline."""
    updates_per_rollout: int = Field(default=1, ge=1)
    """Optimizer steps that one lot of rollouts is cut into; above 1 the later ones are off policy and clipping acts."""
    rollout: RolloutLimits = Field(default_factory=RolloutLimits)
    """Token budgets and time."""
    limits: AgentLimits = Field(default_factory=lambda: AgentLimits(max_turns=8, max_evaluations=4))
    """The agent's, as in a collection. max_turns 1: single-turn (rollout.evaluate_at_end judges what was written)."""
    prompt: PromptConfig = Field(default_factory=PromptConfig)
    """As in the collection that the student learnt from."""
    sampling: SamplingConfig = Field(default_factory=lambda: SamplingConfig(temperature=1.0))
    """Of rollouts; its max_context bounds prompt and completion together."""
    reward: RewardConfig = Field(default_factory=RewardConfig)
    credit: CreditConfig = Field(default_factory=CreditConfig)
    """attempt: one advantage a rollout; turn: each turn its own."""
    loss: LossPreset = "dapo"
    """What clipping, KL and normalisation are unless `trainer` says otherwise (grpo_presets.py)."""
    pools: PoolConfig = Field(default_factory=PoolConfig)
    """Which tasks come next."""
    max_resamples: int = Field(default=1, ge=0)
    """How often a dead group (rewards all equal, or fewer than two) is replaced by one on another task, in a step."""
    evaluator: EvaluatorSettings = Field(default_factory=EvaluatorSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    alarms: AlarmConfig = Field(default_factory=AlarmConfig)
    """Known failures, told in the log and in metrics.jsonl."""
    master_weights: Literal["auto", "on", "off"] = "auto"
    """float32 copies of bfloat16 weights in the optimizer (master_adamw.py); auto: where nobody else keeps them."""
    device_memory_gib: float | None = Field(default=None, gt=0)
    """Of one GPU, for planning; None: this machine's."""
    memory: Literal["refuse", "warn"] = "refuse"
    """What becomes of a run whose estimate is above a GPU's memory."""
    num_threads: int | None = Field(default=None, ge=1)
    """Of torch on CPU; None: torch's choice."""
    trainer: dict[str, Any] = {}
    """Goes to trl.GRPOConfig, over the preset's, but for what this program sets itself. Needs max_steps."""

    @model_validator(mode="after")
    def _can_learn(self) -> GrpoRunConfig:
        if self.sampling.temperature <= 0:
            raise ValueError("sampling.temperature: attempts of a group must differ; set it above 0, for example 1.0")
        if "max_new_tokens" in self.sampling.model_fields_set:
            raise ValueError("sampling.max_new_tokens: in GRPO it is rollout.max_new_tokens; set that")
        if self.credit.mode == "turn" and self.trainer.get("off_policy_mask_threshold") is not None:
            raise ValueError("trainer.off_policy_mask_threshold: looks at whole rollouts, so not with credit.mode turn")
        return self

    @property
    def out_dir(self) -> Path:
        return self.out or Path("runs/grpo") / self.name

    @property
    def seed(self) -> int:
        return int(self.trainer.get("seed", 42))

    @property
    def uses_vllm(self) -> bool:
        return bool(self.trainer.get("use_vllm", False))

    @property
    def vllm_mode(self) -> str:
        return str(self.trainer.get("vllm_mode", "colocate"))

    def check(self) -> None:
        """Refuse, with a UserError, what can be told from the configuration alone."""
        check_reward_protocol(self.evaluator.load_protocol())
        if self.evaluation.final_protocol:
            load_protocol(self.evaluation.final_protocol, **self.evaluation.final_protocol_overrides)


def make_grpo_arguments(
    config: GrpoRunConfig, decided: Mapping[str, Any] | None = None, *, planned: bool = True
) -> GRPOConfig:
    """trl.GRPOConfig from the preset and the trainer mapping, over them what the plan decided.

    planned: False before there is a plan: its batch is then one that TRL takes, and says nothing.
    Raises UserError for a key that it has not, or that is set elsewhere.
    """
    from trl import GRPOConfig

    check_trainer_keys(config.trainer, GRPOConfig, _OURS)
    if config.trainer.get("max_steps", 0) <= 0:
        raise UserError("trainer.max_steps: missing; tasks are drawn without end, so say how many steps to train")
    if config.trainer.get("vllm_enable_sleep_mode"):
        raise UserError("trainer.vllm_enable_sleep_mode: would push the weights anew every turn; remove it")
    values = trainer_defaults(config.loss, name=config.name) | config.trainer | dict(decided or {})
    values |= {
        "num_generations": config.group_size,
        "max_completion_length": config.rollout.max_completion_tokens,
        "temperature": config.sampling.temperature,
        "top_p": config.sampling.top_p,
    }
    if not planned:
        values |= {"per_device_train_batch_size": config.group_size, "gradient_accumulation_steps": 1}
    args = build_arguments(GRPOConfig, values | {"output_dir": str(config.out_dir / CHECKPOINTS_DIR)})
    # one GPU a process: the others that it sees are the judges' and no replicas (Trainer would make them some)
    args._n_gpu = min(args.n_gpu, 1)
    return args
