"""CollectConfig: one collection as configuration, and which of it makes two runs the same collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from data.task import Task
from eval_harness.executor_config import ExecutorConfig, LocalExecutorConfig
from eval_harness.presets import EvaluationProtocol, load_protocol
from eval_harness.verdict_cache import DEFAULT_DIR as DEFAULT_CACHE_DIR
from eval_harness.verdict_cache import DEFAULT_MAX_MB
from trajectories.budget import BudgetLimits
from trajectories.estimate import Assumptions
from trajectories.limits import AgentLimits
from trajectories.plan import Shard, StopRules, TaskOrder
from trajectories.policies.endpoint_config import TRANSPORT_FIELDS
from trajectories.prompts import PromptConfig

DEFAULT_ROOT = Path("runs/collect")
_NOT_IDENTITY = frozenset(
    {"name", "out_dir", "num_workers", "max_concurrent_answers", "max_infrastructure_errors", "executor"}
    | {"budget_usd", "budget_tokens", "budget_hours", "stop", "order", "assume"}
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
    agent: dict[str, Any] = {"kind": "iterative"}
    """`kind` and that kind's settings (trajectories/agents/)."""
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
    """Of the attempts and of the order of tasks."""
    order: TaskOrder = "shuffled"
    """Of the tasks: shuffled by the seed, so that what is there early is a fair sample, or as given."""
    stop: StopRules = StopRules()
    """When a task gets no further attempt; when an attempt ends early is in limits."""
    num_workers: int = Field(default=4, ge=1)
    """Attempts at a time. They wait for answers and verdicts: many more than judges keep the judges busy."""
    max_concurrent_answers: int | dict[str, int] | None = None
    """Answers at a time of every teacher, or by a teacher's name ("*": the others); None: as many as attempts."""
    budget_usd: float | None = Field(default=None, ge=0)
    """For the whole collection, earlier runs included; concurrent attempts overshoot by about one answer."""
    budget_tokens: int | None = Field(default=None, ge=0)
    """The same in tokens, read and written."""
    budget_hours: float | None = Field(default=None, ge=0)
    """The same in hours of collecting."""
    max_infrastructure_errors: int = Field(default=5, ge=1)
    """So many attempts in a row that end by no fault of the policy's stop the run."""
    verdict_cache: bool = True
    """Serve evaluations that were made before from a folder; the final one of an attempt is always fresh."""
    cache_dir: Path = DEFAULT_CACHE_DIR
    cache_max_mb: float = Field(default=DEFAULT_MAX_MB, gt=0)
    assume: Assumptions = Assumptions()
    """What --dry-run counts with where nothing has been measured."""
    out_dir: Path | None = None
    """runs/collect/<name> by default."""

    @property
    def root(self) -> Path:
        return self.out_dir or DEFAULT_ROOT / self.name

    def root_of(self, shard: Shard | None) -> Path:
        """The folder of a share: its own by default, so that machines may share a disk."""
        if shard is None or self.out_dir is not None:
            return self.root
        return DEFAULT_ROOT / f"{self.name}.shard-{shard.index}-of-{shard.count}"

    @property
    def budget_limits(self) -> BudgetLimits:
        return BudgetLimits(self.budget_usd, self.budget_tokens, self.budget_hours)

    def identity(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """What makes two runs one collection; tasks: all of them, whatever the shard."""
        return {**self._identity_fields(), "task_hashes": {task.task_id: task.content_hash for task in tasks}}

    def _identity_fields(self) -> dict[str, Any]:
        config = self.model_dump(mode="json", exclude=set(_NOT_IDENTITY))
        return config | {"policy": _without_transport(config["policy"])}

    def protocols(self) -> tuple[EvaluationProtocol, EvaluationProtocol | None]:
        """The protocols of the attempt's evaluations and of the final one. Raises UserError."""
        final = self.final_protocol and load_protocol(self.final_protocol, **self.final_protocol_overrides)
        return load_protocol(self.protocol, **self.protocol_overrides), final or None


def asks_for_more(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether two identities differ in nothing but more attempts a task, or further tasks beside the same ones."""
    growing = ("num_attempts", "max_tasks", "tasks", "task_hashes")
    if {**stored, **dict.fromkeys(growing)} != {**wanted, **dict.fromkeys(growing)}:
        return False
    has_all = stored.get("task_hashes", {}).items() <= wanted["task_hashes"].items()
    return has_all and wanted["num_attempts"] >= stored.get("num_attempts", 1)


def upgrade_identity(stored: dict[str, Any]) -> dict[str, Any]:
    """An identity from a manifest, with the defaults of settings that its version did not have."""
    try:
        config = CollectConfig.model_validate({"name": "x"} | {k: v for k, v in stored.items() if k != "task_hashes"})
    except ValidationError:
        return stored
    return {**config._identity_fields(), "task_hashes": stored.get("task_hashes", {})}


def _without_transport(policy: Any) -> Any:
    """The settings of a policy, and of a mixture's teachers, without those that decide no answer."""
    if isinstance(policy, list):
        return [_without_transport(each) for each in policy]
    if not isinstance(policy, dict):
        return policy
    return {
        key: _without_transport(value) if key == "teachers" else value
        for key, value in policy.items()
        if key not in TRANSPORT_FIELDS
    }
