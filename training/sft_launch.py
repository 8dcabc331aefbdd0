"""LaunchFacts: how many processes share a run, and what each holds, from accelerate's environment or its YAML file.

A plan can so be made for eight GPUs on a laptop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from eval_harness.errors import UserError

Sharding = Literal["none", "zero2", "zero3", "fsdp2"]


class LaunchFacts(BaseModel):
    """One launch of accelerate, as far as memory and steps go by it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_processes: int = Field(default=1, ge=1)
    num_machines: int = Field(default=1, ge=1)
    sharding: Sharding = "none"
    """What is split over the processes: zero2 gradients and optimizer, zero3 and fsdp2 the weights too."""
    offload_optimizer: bool = False
    """Optimizer states in the CPU's memory."""
    offload_weights: bool = False
    sp_size: int = Field(default=1, ge=1)
    """Processes that share one row (Ulysses)."""
    on_cpu: bool = False

    @property
    def data_parallel(self) -> int:
        """Rows that are worked on at the same time."""
        return self.num_processes // self.sp_size

    def describe(self) -> str:
        """A few words for the plan."""
        name = {"none": "one copy a process", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "fsdp2": "FSDP2"}[self.sharding]
        parts = [f"{self.num_processes} process(es) on {'CPU' if self.on_cpu else 'GPU'}", name]
        if self.num_machines > 1:
            parts.append(f"{self.num_machines} machines")
        if self.offload_optimizer or self.offload_weights:
            parts.append("offload to CPU")
        if self.sp_size > 1:
            parts.append(f"Ulysses over {self.sp_size}")
        return ", ".join(parts)


def launch_from_file(path: Path, **changed: int) -> LaunchFacts:
    """What a configuration file of accelerate asks for, with num_processes or sp_size changed.

    Raises UserError for a file that is none.
    """
    import yaml

    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict) or "distributed_type" not in values:
        raise UserError(f"{path}: no configuration of accelerate (no distributed_type); see configs/accelerate")
    kind = str(values["distributed_type"]).upper()
    deepspeed, fsdp = values.get("deepspeed_config") or {}, values.get("fsdp_config") or {}
    sharding = _sharding(kind, int(deepspeed.get("zero_stage", 0)), int(fsdp.get("fsdp_version", 1)), str(path))
    parallelism = values.get("parallelism_config") or {}
    sp_size = changed.get("sp_size") or int(parallelism.get("parallelism_config_sp_size", 1))
    return _checked(
        num_processes=changed.get("num_processes") or int(values.get("num_processes", 1)),
        num_machines=int(values.get("num_machines", 1)),
        sharding=sharding,
        offload_optimizer=_offloads(deepspeed, "optimizer") or _is_true(fsdp.get("fsdp_offload_params")),
        offload_weights=_offloads(deepspeed, "param") or _is_true(fsdp.get("fsdp_offload_params")),
        sp_size=sp_size,
        on_cpu=_is_true(values.get("use_cpu")),
        origin=str(path),
    )


def launch_from_environment(environment: Mapping[str, str] | None = None, *, on_cpu: bool = False) -> LaunchFacts:
    """What `accelerate launch` told this process; one process where it told nothing."""
    env = os.environ if environment is None else environment
    kind = (
        "DEEPSPEED" if _is_true(env.get("ACCELERATE_USE_DEEPSPEED"))
        else "FSDP" if _is_true(env.get("ACCELERATE_USE_FSDP"))
        else "MULTI"
    )  # fmt: skip
    stage, version = env.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "0"), env.get("FSDP_VERSION", "1")
    deepspeed = {f"offload_{what}_device": env.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{what.upper()}_DEVICE", "none")
                 for what in ("optimizer", "param")}  # fmt: skip
    fsdp_offload = kind == "FSDP" and _is_true(env.get("FSDP_OFFLOAD_PARAMS"))
    num_processes = int(env.get("WORLD_SIZE", "1"))
    return _checked(
        num_processes=num_processes,
        num_machines=max(1, num_processes // max(1, int(env.get("LOCAL_WORLD_SIZE", num_processes)))),
        sharding=_sharding(kind, int(stage), int(version), "accelerate launch"),
        offload_optimizer=_offloads(deepspeed, "optimizer") or fsdp_offload,
        offload_weights=_offloads(deepspeed, "param") or fsdp_offload,
        sp_size=int(env.get("PARALLELISM_CONFIG_SP_SIZE", "1")),
        on_cpu=on_cpu or _is_true(env.get("ACCELERATE_USE_CPU")),
        origin="accelerate launch",
    )


def _checked(*, origin: str, **values: Any) -> LaunchFacts:
    facts = LaunchFacts(**values)
    if facts.num_processes % facts.sp_size:
        raise UserError(f"{origin}: {facts.num_processes} processes cannot share rows by {facts.sp_size}; change one")
    if facts.sp_size > 1 and facts.sharding != "zero3":
        raise UserError(f"{origin}: Ulysses needs ZeRO-3; set deepspeed_config.zero_stage: 3")
    return facts


def _sharding(kind: str, stage: int, version: int, origin: str) -> Sharding:
    if kind == "DEEPSPEED":
        # stage 1 splits the optimizer alone: planned as stage 2, which is a little less
        return "zero3" if stage == 3 else "zero2" if stage in (1, 2) else "none"
    if kind == "FSDP":
        if version != 2:
            raise UserError(f"{origin}: FSDP 1 is not supported; set fsdp_version: 2")
        return "fsdp2"
    return "none"


def _offloads(deepspeed: Mapping[str, Any], what: str) -> bool:
    return str(deepspeed.get(f"offload_{what}_device", "none")).lower() not in ("none", "")


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "1", "yes")
