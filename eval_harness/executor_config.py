"""ExecutorConfig: where evaluations run, as configuration: `executor: {kind: local | ray | http, ...}`.

Loads without torch and Ray; each kind is imported when it is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from eval_harness.config_kinds import with_kind
from eval_harness.errors import UserError
from eval_harness.executor import LocalExecutor
from eval_harness.judge_pool import DEFAULT_MAX_WAITING
from eval_harness.pool_records import Progress

if TYPE_CHECKING:
    from eval_harness.http_evaluator import HttpEvaluator
    from eval_harness.ray_executor import RayExecutor


class LocalExecutorConfig(BaseModel):
    """Judge processes on this machine."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["local"] = "local"
    num_judges: int = Field(default=1, ge=1)
    """For each device. Timed stages on one device never overlap; what compiles without a launch may."""
    max_waiting: int = Field(default=DEFAULT_MAX_WAITING, ge=1)
    """Evaluations that may wait before submit blocks."""


class RayExecutorConfig(BaseModel):
    """Judges on a Ray cluster that is running."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["ray"]
    address: str = "auto"
    """"auto", host:port, ray://host:port, or "local" to start one on this machine."""
    num_actors: int | None = Field(default=None, ge=1)
    """None: one for each GPU of the cluster; one on CPU."""
    num_cpus: float = Field(default=1.0, ge=0)
    """Of each actor."""
    num_gpus: float | None = Field(default=None, gt=0)
    """Of each actor; None: 1 on CUDA."""
    runtime_env: dict[str, Any] | None = None
    """Ray's, for workers that have no passwright installed."""
    max_waiting: int = Field(default=DEFAULT_MAX_WAITING, ge=1)


class HttpExecutorConfig(BaseModel):
    """A service that somebody runs (docs/executors.md); it decides the device."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["http"]
    address: str = Field(min_length=1)
    """URL, such as http://host:8000."""
    max_in_flight: int = Field(default=32, ge=1)
    timeout_s: float = Field(default=3600.0, gt=0)
    """For one answer, waiting in the service's queue included."""


ExecutorConfig = Annotated[
    LocalExecutorConfig | RayExecutorConfig | HttpExecutorConfig,
    Field(discriminator="kind"),
    BeforeValidator(with_kind(LocalExecutorConfig, RayExecutorConfig, HttpExecutorConfig)),
]


def open_executor(
    config: LocalExecutorConfig | RayExecutorConfig | HttpExecutorConfig,
    *,
    device: str,
    progress: Progress | None = None,
) -> LocalExecutor | RayExecutor | HttpEvaluator:
    """The executor that a configuration names, an Evaluator and a context manager.

    device: for judges here and on Ray; a service has its own. Raises UserError: no extra, cluster or service.
    """
    settings = config.model_dump(exclude={"kind"})
    if isinstance(config, LocalExecutorConfig):
        return LocalExecutor(device, progress=progress, **settings)
    if isinstance(config, HttpExecutorConfig):
        from eval_harness.http_evaluator import HttpEvaluator

        address = settings.pop("address")
        return HttpEvaluator(address, **settings)
    try:
        from eval_harness.ray_executor import RayExecutor
    except ImportError as error:
        raise UserError(f"executor ray: {error}; install the extra: pip install 'passwright[ray]'") from None
    return RayExecutor(device=device.partition(":")[0], progress=progress, **settings)
