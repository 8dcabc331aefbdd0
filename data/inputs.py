"""Input tensors of a graph, drawn from its metas: whole draws for correctness, cheap windows for timing.

Two modes. "passnet" is upstream's way, kept for comparison with the paper: its statistics often
round to 0, which makes inputs constant. "robust", the default, draws from the same statistics with a floor under std,
and has a second, wider draw (`spread`). Everything is drawn on the CPU by an own generator: the process-wide one is not
touched. Whether a draw counts (eager against a float64 oracle) is the harness's business, not decided here.
"""

from __future__ import annotations

import ast
import math
import random
from functools import lru_cache
from typing import Any, Literal

import torch

from data.graph import Graph, MalformedGraphError, TensorSpec
from data.syntax import parse_source

InputMode = Literal["robust", "passnet"]

PASSNET_INPUT_SEED = 123
"""Upstream's seed for drawing inputs."""
PASSNET_CALL_SEED = 1024
"""Upstream's seed before each call of a graph."""
PASSNET_STD_SCALE = 0.2
PASSNET_MISSING_STD = 0.1
PASSNET_NON_FINITE_SCALE = 0.01
VALUE_LIMIT = 100.0
"""Floats are clamped to plus or minus this."""

RELIABLE_STD = 0.01
"""Metas hold 3 decimals: a std below this has less than two digits, and 0 may stand for a trained bias."""
MIN_STD = 0.1
"""A robust draw's std where the stated one is not reliable. Reliable ones are kept: convolution weights ten
times larger would make eager float32 itself miss the tolerance."""
MIN_RELATIVE_STD = 0.1
"""Floor relative to the mean's magnitude, for every std: weights of 1.0 with std 0.01 hide a wrong scale."""
SPREAD_LOG2 = 3.0
"""A spread draw scales every element by 2 ** uniform(-3, 3): small and large magnitudes side by side."""
MIN_VARIANCE = 0.05
"""Floor under arguments that a normalisation divides by the root of."""
MASKED_SHARE = 0.25
MASKED_VALUE = -1e4
"""Additive masks become 0 or this: finite in float16, and exp of it is 0."""
ADDITIVE_MASK_MEAN = -1e3
"""A float tensor whose mean is below this is an additive mask."""
POOL_MARGIN = 8192
"""Elements that a pool has beyond its tensor, so that many windows with different content exist."""

_VARIANCE_POSITION = {"batch_norm": {"functional": 2, "torch": 4}, "native_batch_norm": {"torch": 4}}


def draw_inputs(
    graph: Graph, *, seed: int, mode: InputMode = "robust", spread: bool = False
) -> dict[str, torch.Tensor]:
    """One draw: argument name -> contiguous CPU tensor, in the order of forward's arguments.

    The same arguments give the same values. `spread` is for robust draws only. Raises MalformedGraphError.
    """
    generator = torch.Generator().manual_seed(seed)
    variances = variance_arguments(graph)
    drawn = {
        name: _draw(graph, spec, spec.num_elements, generator, mode, spread, name in variances).reshape(spec.shape)
        for name, spec in graph.specs.items()
    }
    return {name: drawn[name] for name in graph.arguments}


class InputPool:
    """Fresh inputs at the cost of a copy: each window is a random slice of values that were drawn once.

    Every tensor has a pool of num_elements + POOL_MARGIN values; a window takes an offset for each tensor apart, where
    the pools lie (candidate_process.input_sets cuts them). Tensors whose meta holds `data` are constant.
    """

    def __init__(self, graph: Graph, seed: int, mode: InputMode = "robust") -> None:
        generator = torch.Generator().manual_seed(seed)
        variances = variance_arguments(graph)
        pools = {}
        for name, spec in graph.specs.items():
            num_values = spec.num_elements + (POOL_MARGIN if spec.data is None else 0)
            pools[name] = _draw(graph, spec, num_values, generator, mode, False, name in variances)
        self._pools = {name: pools[name] for name in graph.arguments}
        self._shapes = {name: graph.specs[name].shape for name in graph.arguments}

    @property
    def pools(self) -> dict[str, torch.Tensor]:
        """Argument name -> its pool, flat."""
        return dict(self._pools)

    def draw_offsets(self, generator: random.Random) -> list[int]:
        """Where one window begins in each pool, in argument order."""
        return [
            generator.randrange(pool.numel() - math.prod(self._shapes[name]) + 1) for name, pool in self._pools.items()
        ]

    @property
    def num_bytes(self) -> int:
        """Of one window."""
        return sum(math.prod(shape) * self._pools[name].element_size() for name, shape in self._shapes.items())


def torch_dtype(name: str) -> torch.dtype:
    """ "torch.float32" -> torch.float32. Raises MalformedGraphError."""
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise MalformedGraphError(f'{name!r} is no dtype of PyTorch; write it as in "torch.float32"')
    return dtype


def variance_arguments(graph: Graph) -> frozenset[str]:
    """Arguments that batch_norm takes as the running variance: a negative one would make every output NaN."""
    return _variance_arguments(graph.model_source)


@lru_cache(maxsize=64)  # a graph is drawn many times in a row
def _variance_arguments(source: str) -> frozenset[str]:
    found = set()
    for node in ast.walk(parse_source(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            positions = _VARIANCE_POSITION.get(node.func.attr, {})
            position = positions.get("functional" if ast.unparse(node.func.value).endswith("functional") else "torch")
            if position is not None and position < len(node.args) and isinstance(node.args[position], ast.Name):
                found.add(node.args[position].id)  # type: ignore[attr-defined]
    return frozenset(found)


def _draw(
    graph: Graph,
    spec: TensorSpec,
    num_values: int,
    generator: torch.Generator,
    mode: InputMode,
    spread: bool,
    is_variance: bool,
) -> torch.Tensor:
    """num_values values of the spec's dtype, flat."""
    try:
        dtype = torch_dtype(spec.dtype)
    except MalformedGraphError as error:
        raise MalformedGraphError(f"{graph.name}: class {spec.class_name}: {error}") from None
    if spec.data is not None:
        return _constant(graph, spec, dtype)
    if dtype is torch.bool:
        return torch.rand(num_values, generator=generator) > 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        # without bounds: 0 or 1, which indexes anything and is right for a mask
        low = int(spec.min_val) if spec.min_val is not None else 0
        high = int(spec.max_val) if spec.max_val is not None else max(low, 1)
        return torch.randint(low, max(low, high) + 1, (num_values,), generator=generator).to(dtype)
    if mode == "passnet":
        return _passnet_floats(spec, num_values, dtype, generator)
    if dtype.is_complex:
        parts = [_robust_floats(spec, num_values, generator, spread, False) for _ in range(2)]
        return torch.complex(parts[0], parts[1]).to(dtype)
    return _robust_floats(spec, num_values, generator, spread, is_variance).to(dtype)


def _constant(graph: Graph, spec: TensorSpec, dtype: torch.dtype) -> torch.Tensor:
    try:
        values = torch.tensor(spec.data, dtype=dtype).flatten()
    except (TypeError, ValueError, RuntimeError) as error:
        raise MalformedGraphError(f"{graph.name}: class {spec.class_name}: data is not numeric ({error})") from None
    if values.numel() != spec.num_elements:
        raise MalformedGraphError(
            f"{graph.name}: class {spec.class_name}: data holds {values.numel()} values, shape {list(spec.shape)} "
            f"needs {spec.num_elements}; correct one of them"
        )
    return values


def _passnet_floats(spec: TensorSpec, num_values: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Upstream's draw: randn * std * 0.2 + mean in the tensor's own dtype, then clamped."""
    mean = 0.0 if spec.mean is None else spec.mean
    std = PASSNET_MISSING_STD if spec.std is None else spec.std
    noise = torch.randn(num_values, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32)
    values = noise.to(dtype) * std * PASSNET_STD_SCALE + mean
    if not (math.isfinite(mean) and math.isfinite(std) and bool(torch.isfinite(values).all())):
        values = noise.to(dtype) * PASSNET_NON_FINITE_SCALE
    if dtype.is_complex:
        return values
    low, high = _bounds(spec, VALUE_LIMIT)
    return values.clamp(low, high)


def _robust_floats(
    spec: TensorSpec, num_values: int, generator: torch.Generator, spread: bool, is_variance: bool
) -> torch.Tensor:
    mean = _finite(spec.mean, 0.0)
    if (spec.mean is not None and spec.mean == -math.inf) or mean < ADDITIVE_MASK_MEAN:
        masked = torch.rand(num_values, generator=generator) < MASKED_SHARE
        return torch.where(masked, MASKED_VALUE, 0.0)
    std = _finite(spec.std, 0.0)
    std = max(std if std >= RELIABLE_STD else MIN_STD, MIN_RELATIVE_STD * abs(mean))
    # a wide std would pile values up at the limit, a far mean would put all of them there
    std = min(std, max(VALUE_LIMIT / 4, abs(mean)))
    limit = max(VALUE_LIMIT, abs(mean) + 4 * std)
    dtype = torch.float64 if spec.dtype == "torch.float64" else torch.float32
    noise = torch.randn(num_values, generator=generator, dtype=dtype)
    if spread:
        exponent = torch.rand(num_values, generator=generator, dtype=dtype) * (2 * SPREAD_LOG2) - SPREAD_LOG2
        noise = noise * torch.exp2(exponent)
    low, high = _bounds(spec, limit)
    values = (noise * std + mean).clamp(low, high)
    return values.abs().clamp_min(MIN_VARIANCE) if is_variance else values


def _bounds(spec: TensorSpec, limit: float) -> tuple[float, float]:
    low = max(_finite(spec.min_val, -limit), -limit)
    high = min(_finite(spec.max_val, limit), limit)
    return low, max(low, high)


def _finite(value: Any, otherwise: float) -> float:
    return float(value) if value is not None and math.isfinite(value) else otherwise
