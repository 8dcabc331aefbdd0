"""StudentEvaluationConfig: one evaluation of one checkpoint, as configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from eval_harness.executor_config import ExecutorConfig, LocalExecutorConfig
from eval_harness.presets import EvaluationProtocol, load_protocol
from training.serve_config import AutoServeConfig, ServeConfig, ServingCost
from training.student_policy import SamplingConfig
from trajectories.limits import AgentLimits
from trajectories.plan import Shard
from trajectories.prompts import PromptConfig

DEFAULT_ROOT = Path("runs/evaluate")
COLLECTION_DIR = "collection"


class StudentEvaluationConfig(BaseModel):
    """One evaluation of one checkpoint."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="student", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$")
    """Also the row's name in a report."""
    student: Path
    """Checkpoint folder (weights or an adapter, tokenizer, chat template), or a model's name on the hub."""
    tasks: list[str] = Field(min_length=1)
    """References of tasks, as in a collection's configuration."""
    max_tasks: int | None = Field(default=None, ge=1)
    num_attempts: int = Field(default=1, ge=1)
    """Attempts a task. The headline is of the first; more need a temperature above 0 to differ."""
    sampling: SamplingConfig = SamplingConfig()
    server: ServeConfig = AutoServeConfig()
    """What serves the student: `kind: auto | vllm | endpoint | transformers` and that kind's settings."""
    cost: ServingCost = ServingCost()
    """What its answers cost, for the report."""
    student_device: str = "cpu"
    """Where a student runs that transformers serves."""
    student_dtype: str | None = None
    """Of such a student; None: as it is stored."""
    limits: AgentLimits = AgentLimits(time_limit_s=None)
    """The teacher's, for a student that learnt by heart: the prompt and each tool result state the turns left. No limit
    of wall clock by default: a score would follow how busy the server was."""
    prompt: PromptConfig = PromptConfig()
    """The teacher's, for the same reason."""
    protocol: str = "reward"
    """Of the evaluations that the student sees."""
    protocol_overrides: dict[str, Any] = {}
    final_protocol: str = "strict"
    """Of the one fresh evaluation of each attempt's best pass, and of the baselines."""
    final_protocol_overrides: dict[str, Any] = {"batch_invariance": "report"}
    final_retries: int = Field(default=2, ge=0)
    """An UNSTABLE fresh evaluation is made again this often: one of them leaves the whole row without AS."""
    baselines: list[Literal["eager", "inductor"]] = []
    """Rows measured by the same judge in the same run; the command line's default is both."""
    through_compile: bool = False
    """Also the best passes and Inductor through torch.compile with its guards, as rows of their own: figures against
    TorchInductor are read like for like."""
    device: str = "cpu"
    """Where passes run."""
    executor: ExecutorConfig = LocalExecutorConfig()
    """As in a collection's configuration."""
    seed: int = 0
    num_workers: int | None = Field(default=None, ge=1)
    """Attempts at a time; None: 1 for transformers, which answers one of them at a time, else 32."""
    out: Path | None = None
    """Default: runs/evaluate/<name>."""

    @property
    def out_dir(self) -> Path:
        return self.out or DEFAULT_ROOT / self.name

    def out_dir_of(self, shard: Shard | None) -> Path:
        """The folder of a share of the tasks: its own by default, so that machines may share a disk."""
        if shard is None or self.out is not None:
            return self.out_dir
        return DEFAULT_ROOT / f"{self.name}.shard-{shard.index}-of-{shard.count}"

    def resolved_final_protocol(self, **more: Any) -> EvaluationProtocol:
        """The protocol of fresh evaluations and baselines. Raises UserError."""
        return load_protocol(self.final_protocol, **(self.final_protocol_overrides | more))


NOT_IDENTITY = frozenset(
    {"out", "num_workers", "executor", "server", "cost", "baselines", "through_compile", "final_retries"}
)
"""Fields that may differ when an evaluation goes on: where and how fast, and what is measured beside it. Of the server,
what decides answers is in the collection's own identity."""
