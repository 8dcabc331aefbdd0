"""CollectConfig: one collection as configuration, and which of it makes two runs the same collection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from eval_harness.executor_config import ExecutorConfig, LocalExecutorConfig
from eval_harness.presets import EvaluationProtocol, load_protocol
from eval_harness.verdict_cache import DEFAULT_DIR as DEFAULT_CACHE_DIR
from eval_harness.verdict_cache import DEFAULT_MAX_MB
from trajectories.environment import AgentLimits
from trajectories.prompts import PromptConfig

DEFAULT_ROOT = Path("runs/collect")
_NOT_IDENTITY = frozenset(
    {"name", "out_dir", "num_workers", "budget_usd", "max_infrastructure_errors", "executor"}
    | {"verdict_cache", "cache_dir", "cache_max_mb"}
)
"""May differ on a resume: they change how fast or how far, not what is collected."""


class CollectConfig(BaseModel):
    """One collection: which tasks, which policy, how often, within which limits."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$")
    """The collection's folder below runs/collect/."""
    tasks: list[str] = Field(min_length=1)
    """References of tasks: DIR, FILE.parquet[:split][/task_id] or NAME[:split][/task_id]."""
    max_tasks: int | None = Field(default=None, ge=1)
    """Only the first so many."""
    num_attempts: int = Field(default=1, ge=1)
    """Attempts a task."""
    policy: dict[str, Any]
    """`kind` and that kind's settings (trajectories/policies/)."""
    limits: AgentLimits = AgentLimits()
    prompt: PromptConfig = PromptConfig()
    protocol: str = "reward"
    """Of the evaluations that the policy sees."""
    protocol_overrides: dict[str, Any] = {}
    final_protocol: str | None = "strict"
    """Of the one evaluation, with new seeds, that leaves the attempt; None leaves it out."""
    final_protocol_overrides: dict[str, Any] = {}
    device: str = "cpu"
    executor: ExecutorConfig = LocalExecutorConfig()
    """Where evaluations run: `kind: local | ray | http` and that kind's settings (eval_harness/executor_config.py)."""
    seed: int = 0
    num_workers: int = Field(default=4, ge=1)
    """Attempts at a time."""
    budget_usd: float | None = Field(default=None, ge=0)
    """For the whole collection; concurrent attempts may overshoot by one answer each."""
    max_infrastructure_errors: int = Field(default=5, ge=1)
    """So many attempts in a row that end by no fault of the policy's stop the run."""
    verdict_cache: bool = True
    """Serve evaluations that were made before from a folder; the final one of an attempt is always fresh."""
    cache_dir: Path = DEFAULT_CACHE_DIR
    cache_max_mb: float = Field(default=DEFAULT_MAX_MB, gt=0)
    out_dir: Path | None = None
    """runs/collect/<name> by default."""

    @property
    def root(self) -> Path:
        return self.out_dir or DEFAULT_ROOT / self.name

    def identity(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """What makes two runs one collection."""
        config = self.model_dump(mode="json", exclude=set(_NOT_IDENTITY))
        return {**config, "task_hashes": {task.task_id: task.content_hash for task in tasks}}

    def protocols(self) -> tuple[EvaluationProtocol, EvaluationProtocol | None]:
        """The protocols of the attempt's evaluations and of the final one. Raises UserError."""
        final = self.final_protocol and load_protocol(self.final_protocol, **self.final_protocol_overrides)
        return load_protocol(self.protocol, **self.protocol_overrides), final or None
