"""Parts of a GRPO run's configuration: the student, the tasks, where rollouts are judged, the evaluation on the way."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from eval_harness.executor_config import ExecutorConfig, LocalExecutorConfig
from eval_harness.presets import EvaluationProtocol, load_protocol


class GrpoStudent(BaseModel):
    """Which model is trained."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    name_or_path: str
    """A model's name or folder; usually the `student` folder of an SFT run."""
    dtype: str = "bfloat16"
    """Of its weights; float32 for tiny students on a CPU."""
    attn_implementation: str | None = "sdpa"
    """As transformers names it, such as flash_attention_2. Rollouts are padded to one length."""
    chat_template: str | None = None
    """A template of training/templates. None: the one that writes what the model's own does (chat_templates.py)."""
    rope_scaling: dict[str, Any] | None = None
    """Put into the model's configuration: needed where prompt and rollout go beyond the model's positions."""
    model_kwargs: dict[str, Any] = {}
    """More of from_pretrained, such as revision."""


class GrpoTasks(BaseModel):
    """What is asked, as references of tasks (`mini:train`, a folder, a Parquet file)."""

    model_config = ConfigDict(extra="forbid")

    train: list[str] = Field(min_length=1)
    """Groups are run on these; which next: pools."""
    max_train: int | None = Field(default=None, ge=1)
    """The first so many only."""
    held_out: list[str] = []
    """Never trained on: a task that is among the training tasks too is refused."""
    max_held_out: int | None = Field(default=None, ge=1)


class EvaluationSettings(BaseModel):
    """The student as it stands, on held-out tasks, in the same environment before the same judge."""

    model_config = ConfigDict(extra="forbid")

    every_steps: int | None = Field(default=50, ge=1)
    """None: never, not even at the ends."""
    at_ends: bool = True
    """Before the first step and after the last, too."""
    num_train_tasks: int = Field(default=0, ge=0)
    """So many of the training tasks are evaluated beside the held-out ones, as `train_tasks/`."""
    num_attempts: int = Field(default=1, ge=1)
    """A task; more need a temperature above 0 to differ."""
    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    final_protocol: str | None = "strict"
    """Of one fresh evaluation of each attempt's best pass, whose AS is the figure; None: the feedback's, which is the
    lucky one of several."""
    final_protocol_overrides: dict[str, Any] = {}


class EvaluatorSettings(BaseModel):
    """Where rollouts are judged."""

    model_config = ConfigDict(extra="forbid")

    devices: list[str] = Field(default=["cpu"], min_length=1)
    """"cpu" or "cuda:i", as this process counts GPUs. They are dealt to the processes of a machine; fewer devices than
    processes are shared among them, one evaluation at a time."""
    executor: ExecutorConfig = LocalExecutorConfig()
    """For each process; see docs/executors.md. A service (http) or Ray may be on other machines."""
    shared_gpu: Literal["refuse", "lock"] = "refuse"
    """What becomes of an evaluator on a GPU that trains. lock: generation and evaluation take turns on it by the
    device's lock, so what is timed is alone there; slower, and the only way with one GPU."""
    share_repeats: bool = True
    """Attempts of one lot that submit the same pass folder share its verdict: they are worth the same, whatever the
    clock's noise, and judges have less to do. Never across lots, where a lucky verdict would stay."""
    protocol: str = "reward"
    """Of the evaluations of a rollout."""
    protocol_overrides: dict[str, Any] = {}
    assumed_evaluation_s: float = Field(default=8.0, gt=0)
    """Seconds of one evaluation that the dry run reckons with; metrics.jsonl has what it really took."""

    def load_protocol(self) -> EvaluationProtocol:
        """Raises UserError."""
        return load_protocol(self.protocol, **self.protocol_overrides)
