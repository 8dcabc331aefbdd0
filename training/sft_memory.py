"""Memory of one GPU in a supervised run, by parts, from the model's sizes and the launch; and what would make it fit.

An estimate: `passwright bench sft` prints it beside the measured peak. Peaks of different parts are added as if they
came together; what a process takes for itself (context, workspaces, fragments) is in `overhead`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from training.master_adamw import BYTES_PER_WEIGHT
from training.model_shape import ModelShape
from training.sft_launch import LaunchFacts

GIB = float(1 << 30)
SAFE_SHARE = 0.92
"""Of a GPU's memory that a plan may use: estimates err."""
_CONTEXT_GIB = 1.5
_FRAGMENTS = 0.04
_BACKWARD = 0.7
"""Gradients of a layer's activations at the worst moment, as a share of the activations."""
_TOKEN_TILE, _VOCABULARY_TILE = 4096, 32768
"""Of TRL's loss: logits exist for that many tokens and words at once."""
_ZERO_BUCKET = 5e8
"""Elements of DeepSpeed's default buckets; ZeRO-2 fills one while it sends the other."""


@dataclass(frozen=True)
class RunShape:
    """What of a run decides its memory."""

    tokens: int
    """Of one micro batch, all its rows together (with Ulysses: before it is shared)."""
    trained_share: float = 1.0
    checkpointed_layers: int = 0
    fused: bool = True
    weight_bytes: int = 2
    master_weights: bool = True
    """MasterAdamW where nobody else keeps master weights."""
    adapter_parameters: int = 0
    """Of LoRA; 0: all weights are trained."""
    offload_activations: bool = False


@dataclass(frozen=True)
class MemoryEstimate:
    """GiB on one GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    loss: float
    overhead: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.loss + self.overhead

    def describe(self) -> str:
        """One line, GiB by part."""
        parts = ("weights", "gradients", "optimizer", "activations", "loss", "overhead")
        return f"{self.total:.1f} GiB: " + ", ".join(f"{part} {getattr(self, part):.1f}" for part in parts)


def estimate_memory(shape: ModelShape, launch: LaunchFacts, run: RunShape) -> MemoryEstimate:
    """The peak of one GPU."""
    weights, gradients, optimizer = _states(shape, launch, run)
    tokens = run.tokens / launch.sp_size
    layer = layer_bytes(shape, run) * tokens
    checkpointed = min(run.checkpointed_layers, shape.num_layers)
    kept = shape.num_layers - checkpointed
    inputs = 0.0 if run.offload_activations else 2.0 * shape.hidden * tokens * checkpointed
    # kept layers lie there when the backward pass begins; later one checkpointed layer at a time is computed again
    working = max(kept * layer + _BACKWARD * layer, (1 + _BACKWARD) * layer if checkpointed else 0.0)
    around = tokens * (8 * shape.hidden + 8 * shape.head_dim + 64)
    activations = inputs + working + around
    trained = tokens * run.trained_share
    output = shape.vocabulary * shape.hidden
    needs_output_gradient = not run.adapter_parameters
    tiles = 2 * 2 * _TOKEN_TILE * min(_VOCABULARY_TILE, shape.vocabulary)
    loss = trained * 10 * shape.hidden + tiles + (6 * output if needs_output_gradient else 0)
    held = weights + gradients + optimizer + activations + loss
    return MemoryEstimate(
        weights=weights / GIB,
        gradients=gradients / GIB,
        optimizer=optimizer / GIB,
        activations=activations / GIB,
        loss=loss / GIB,
        overhead=_CONTEXT_GIB + _FRAGMENTS * held / GIB,
    )


def layer_bytes(shape: ModelShape, run: RunShape) -> float:
    """Bytes a token that one layer keeps for its backward pass."""
    hidden, heads, kv, gated = shape.hidden, shape.attention_width, shape.kv_width, shape.gated
    # both norms' inputs and outputs; queries and keys before and after norm and rotation, values, result; gate, up and
    # their product
    elements = 4 * hidden + 3 * heads + 3 * kv + 3 * gated
    # of a mixture a token's copy for each of its experts, and what each gives back
    elements += 2 * hidden * shape.experts_per_token
    total = 2.0 * elements
    if not run.fused:
        # float32 copies in the norms, the halves of the rotation, the gate's activation
        total += 16 * hidden + 12 * (heads + kv) + 2 * gated
    return total


def _states(shape: ModelShape, launch: LaunchFacts, run: RunShape) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer states."""
    count, share = float(shape.num_parameters), float(launch.num_processes)
    output = 2.0 * shape.vocabulary * shape.hidden
    gathered = 2 * 2.0 * shape.layer_parameters + output
    if run.adapter_parameters:
        adapters = 16.0 * run.adapter_parameters
        split = share if launch.sharding in ("zero3", "fsdp2") else 1
        weights = run.weight_bytes * count / split + (gathered if split > 1 else 0)
        return weights, adapters / 4, adapters * 3 / 4
    if launch.sharding == "zero2":
        buckets = 2 * 2 * min(_ZERO_BUCKET, count)
        return 2 * count, 2 * count / share + buckets, 0.0 if launch.offload_optimizer else 12 * count / share
    if launch.sharding == "zero3":
        weights = (0.0 if launch.offload_weights else 2 * count / share) + gathered
        optimizer = 0.0 if launch.offload_optimizer else 12 * count / share
        return weights, (0.0 if launch.offload_optimizer else 2 * count / share) + output, optimizer
    if launch.sharding == "fsdp2":
        own = 0.0 if launch.offload_weights else count / share
        return 4 * own + gathered, 4 * own + 2.0 * shape.layer_parameters, 8 * own
    copies = 2 if launch.num_processes > 1 else 1  # DDP's buckets
    bytes_each = run.weight_bytes
    optimizer = (BYTES_PER_WEIGHT if run.master_weights and bytes_each == 2 else 2 * bytes_each) * count
    return bytes_each * count, copies * bytes_each * count, optimizer


def fewest_checkpointed(shape: ModelShape, launch: LaunchFacts, run: RunShape, memory_gib: float) -> int | None:
    """The smallest number of checkpointed layers that fits; None: not even all of them do."""
    for layers in range(shape.num_layers + 1):
        if _fits(shape, launch, replace(run, checkpointed_layers=layers), memory_gib):
            return layers
    return None


def longest_row(shape: ModelShape, launch: LaunchFacts, run: RunShape, memory_gib: float, *, step: int = 1024) -> int:
    """The longest micro batch in tokens that fits, a multiple of step; 0: none does."""
    return _largest(lambda tokens: _fits(shape, launch, replace(run, tokens=tokens), memory_gib), step)


def _fits(shape: ModelShape, launch: LaunchFacts, run: RunShape, memory_gib: float) -> bool:
    return estimate_memory(shape, launch, run).total <= SAFE_SHARE * memory_gib


def _largest(fits: Callable[[int], bool], step: int) -> int:
    low, high = 0, 1
    while fits(high * step) and high < 1 << 20:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle)
    return low * step


def ways_to_fit(shape: ModelShape, launch: LaunchFacts, run: RunShape, memory_gib: float) -> list[str]:
    """What to change so that it fits, the mildest first; empty: nothing of this would do."""
    full = replace(run, checkpointed_layers=shape.num_layers)
    offloaded = replace(full, offload_activations=True)
    ways: list[tuple[str, LaunchFacts, RunShape]] = [
        ("checkpointing: full", launch, full),
        ("trainer.activation_offloading=true with checkpointing: full", launch, offloaded),
    ]
    shared = launch.model_copy(update={"sp_size": 1, "offload_optimizer": False, "offload_weights": False})
    if launch.num_processes > 1:
        for sharding in ("zero2", "fsdp2", "zero3"):
            changed = shared.model_copy(update={"sharding": sharding})
            ways.append((f"configs/accelerate/{sharding}.yaml", changed, full))
    offload = {"sharding": "zero3", "offload_optimizer": True, "offload_weights": True}
    ways.append(("configs/accelerate/zero3_offload.yaml", shared.model_copy(update=offload), full))
    if launch.num_processes > 1 and shape.num_heads % launch.num_processes == 0:
        spread = {"sharding": "zero3", "sp_size": launch.num_processes}
        ways.append((f"Ulysses over {launch.num_processes} GPUs (configs/accelerate/ulysses_sp8.yaml)",
                     shared.model_copy(update=spread), full))  # fmt: skip
    found = [
        f"{name} (about {estimate_memory(shape, changed, changed_run).total:.0f} GiB)"
        for name, changed, changed_run in ways
        if (changed, changed_run) != (launch, run) and _fits(shape, changed, changed_run, memory_gib)
    ]
    longest = longest_row(shape, launch, full, memory_gib)
    if 0 < longest < run.tokens:
        found.append(f"micro batches of at most {longest} tokens (max_length, per_device_train_batch_size)")
    return found
