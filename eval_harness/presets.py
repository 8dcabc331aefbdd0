"""EvaluationProtocol: what `passnet`, `strict` and `reward` fix. Messages are in protocol.py."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from eval_harness.errors import UserError
from eval_harness.verdict import Layer


class EvaluationProtocol(BaseModel):
    """Everything that two evaluations must share for their numbers to be compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["passnet", "strict", "reward"]
    apply: Literal["direct", "compile"] = "direct"
    """Run the rewritten GraphModule itself, or through torch.compile(backend=...), as upstream does."""
    inputs: Literal["passnet", "robust"] = "robust"
    scoring: Literal["paper", "public", "passwright"] = "passwright"
    num_draws: int = Field(default=4, ge=1)
    """Fresh correctness draws a graph."""
    clock: Literal["paired", "upstream"] = "paired"
    """The judge's paired blocks, or upstream's per-call trials in the process (never for reward or selection)."""
    timing: bool = True
    """False: every stage but the clock, for the share of correct graphs alone. The verdict then has no score."""
    num_clusters: int = Field(default=5, ge=2)
    """Independent placements of buffers on both sides, at least."""
    pairs_per_cluster: int = Field(default=4, ge=2)
    timing_cuda_s: float = Field(default=1.5, ge=0)
    """Seconds for which clusters of one graph are added on a GPU; with what surrounds them a graph takes 2 s."""
    timing_cpu_s: float = Field(default=4.0, ge=0)
    """The same on a CPU, where other processes disturb: 5 s with what surrounds them."""
    block_ms: float = Field(default=14.0, gt=0)
    """Target length of one timed block: 1 ms was measured to be too short, and what surrounds a block takes 10 ms."""
    block_cpu_ms: float = Field(default=5.0, gt=0)
    """The same on a CPU, where bursts of other processes hit fewer of many short blocks."""
    max_noise: float = Field(default=1.25, gt=1)
    """A 95% interval reaching further than this factor from the speedup, the A/A floor apart, is measured again."""
    gpu_time: bool = True
    """Record GPU time by the profiler beside the clock's figure; starting the profiler takes a while."""
    num_warmup: int = 20
    """Upstream clock only."""
    num_trials: int = 100
    """Upstream clock only."""
    max_timed_graphs: int | None = None
    """Time at most this many graphs, stratified, redrawn secretly each time; None times all."""
    unseen_shapes: int = Field(default=2, ge=0)
    """Shapes outside the task at which a graph is checked, where it can be made there and a rule matches it."""
    unseen_dtypes: int = Field(default=1, ge=0)
    """Dtypes likewise."""
    max_unseen_graphs: int | None = Field(default=None, ge=0)
    """Check at most this many graphs so, chosen secretly; None checks all."""
    graph_timeout_s: float = Field(default=60.0, gt=0)
    """Wall clock that a candidate may take for one request: loading, compiling for a graph, a call, a timed block."""
    task_timeout_s: float = Field(default=900.0, gt=0)
    max_memory_share: float = Field(default=0.75, gt=0, le=1)
    """Host memory that a candidate's processes may hold, of what is available when they start."""
    batch_invariance: Literal["off", "report", "enforce"] = "off"
    """The gate of batch invariance: enforce makes a variant graph BATCH_VARIANT; report only records it."""
    confirm_batch_invariance: bool = True
    """Confirm what the gate lets through in fresh processes, and look at the whole graph too."""
    integrity: Literal["full", "upstream"] = "full"
    """All layers of docs/integrity.md, or upstream's two allow-lists only."""
    disabled_layers: tuple[Layer, ...] = ()
    """Integrity layers that are switched off, to find out what the others catch. For benches and tests: the verdict
    says so, and neither selection nor a report takes it."""
    slowdown_exponent: float = 0.0
    """p of the score: s^(p+1) for a correct graph slower than eager."""

    @field_validator("disabled_layers")
    @classmethod
    def _each_once(cls, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(sorted(set(layers)))

    def checks(self, layer: Layer) -> bool:
        """Whether a layer's findings count."""
        return layer not in self.disabled_layers

    def timing_s(self, device: str) -> float:
        """Seconds for which clusters of one graph are added on a device."""
        return self.timing_cuda_s if device.startswith("cuda") else self.timing_cpu_s

    def block_length_ms(self, device: str) -> float:
        """Target length of one timed block on a device."""
        return self.block_ms if device.startswith("cuda") else self.block_cpu_ms


PRESETS: dict[str, EvaluationProtocol] = {
    "strict": EvaluationProtocol(name="strict"),
    "reward": EvaluationProtocol(
        name="reward",
        num_draws=3,
        timing_cuda_s=0.05,
        pairs_per_cluster=3,
        block_ms=2.5,
        timing_cpu_s=0.8,
        max_noise=1.5,
        gpu_time=False,
        confirm_batch_invariance=False,
        max_timed_graphs=8,
        max_unseen_graphs=2,
        task_timeout_s=300.0,
    ),
    "passnet": EvaluationProtocol(
        name="passnet",
        apply="compile",
        inputs="passnet",
        scoring="paper",
        num_draws=1,
        unseen_shapes=0,
        unseen_dtypes=0,
        clock="upstream",
        integrity="upstream",
    ),
}


def load_protocol(name: str, **overrides: object) -> EvaluationProtocol:
    """The named preset with overrides. Raises UserError for an unknown name."""
    if name not in PRESETS:
        raise UserError(f"--protocol {name}: unknown; choose one of {', '.join(PRESETS)}")
    return PRESETS[name].model_validate(PRESETS[name].model_dump() | overrides)
