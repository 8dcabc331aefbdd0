"""A whole model eager, through TorchInductor alone, and with passes: latency, accuracy, kernels, compile time.

    rounds: each variant timed once a round, in another order each time -> ratios within a round -> their 95% interval

What one round's variants share (clocks, other work) cancels in their ratio. On a GPU a block of calls ends in a
synchronisation; kernels are counted by the profiler.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from scipy.special import stdtrit

BLOCK_S = 0.05
"""A timed block has as many calls as last about so long."""
MAX_CALLS = 200
ATTENTION_MARKS = ("flash", "efficient_attention", "cudnn_attention", "attention_math", "scaled_dot_product")
"""Parts of the names of operators and kernels by which attention is told."""


@dataclass
class VariantFigures:
    """One way of running the model."""

    compile_s: float
    """Of its first call, less one later call."""
    latency_us: float = math.nan
    """Median over rounds."""
    num_kernels: int | None = None
    """GPU kernels a call; None on a CPU."""
    attention: dict[str, int] = field(default_factory=dict)
    """Attention operator or kernel -> calls."""
    max_abs_difference: float = 0.0
    """Of any output from eager's."""
    max_relative_difference: float = 0.0
    """The same over the largest magnitude in that output."""
    samples_us: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Ratio:
    """How much faster one variant is than another."""

    speedup: float
    low: float
    high: float
    """95% over rounds."""


def measure_variants(
    variants: Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    rounds: int,
    device: torch.device,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, VariantFigures]:
    """Figures of each; the first is the one that the others' outputs are compared with."""
    found: dict[str, VariantFigures] = {}
    expected: list[torch.Tensor] | None = None
    calls: dict[str, int] = {}
    for name, run in variants.items():
        tell(f"compiling {name}")
        first = _timed(run, args, kwargs, 1, device)
        outputs = tensors_in(run(*args, **kwargs))
        expected = expected or outputs
        later = min(_timed(run, args, kwargs, 1, device) for _ in range(3))
        figures = found[name] = VariantFigures(compile_s=max(0.0, first - later))
        figures.max_abs_difference, figures.max_relative_difference = _difference(outputs, expected)
        figures.num_kernels, figures.attention = _profiled(run, args, kwargs, device)
        calls[name] = max(1, min(MAX_CALLS, round(BLOCK_S / max(later, 1e-7))))
    order = list(variants)
    rng = random.Random(0)
    for number in range(rounds):
        rng.shuffle(order)
        for name in order:
            spent = _timed(variants[name], args, kwargs, calls[name], device)
            found[name].samples_us.append(1e6 * spent / calls[name])
        tell(f"round {number + 1} of {rounds}")
    for figures in found.values():
        figures.latency_us = statistics.median(figures.samples_us)
    return found


def ratio(base: VariantFigures, other: VariantFigures) -> Ratio:
    """Speedup of `other` over `base`: geometric mean of the rounds' ratios, with Student's interval."""
    logs = [math.log(slow / fast) for slow, fast in zip(base.samples_us, other.samples_us, strict=True)]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Ratio(math.exp(mean), 0.0, math.inf)
    reach = float(stdtrit(len(logs) - 1, 0.975)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor of an output, in order: of tuples, lists, mappings (and so transformers' outputs)."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    if isinstance(value, Mapping):
        return [tensor for each in value.values() for tensor in tensors_in(each)]
    if isinstance(value, tuple | list):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def _timed(
    run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], count: int, device: torch.device
) -> float:
    """Seconds of `count` calls, to the end of their work on the device."""
    _synchronise(device)
    started = time.perf_counter()
    for _ in range(count):
        run(*args, **kwargs)
    _synchronise(device)
    return time.perf_counter() - started


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _difference(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Largest absolute difference, and largest over the output's own magnitude; infinite where the outputs differ in
    number, shape or finiteness."""
    if [tensor.shape for tensor in found] != [tensor.shape for tensor in expected]:
        return math.inf, math.inf
    largest = relative = 0.0
    for ours, theirs in zip(found, expected, strict=True):
        one, two = ours.double(), theirs.double()
        if not torch.equal(torch.isfinite(one), torch.isfinite(two)):
            return math.inf, math.inf
        difference = float((one - two).nan_to_num(0.0, 0.0, 0.0).abs().max()) if one.numel() else 0.0
        magnitude = float(two.nan_to_num(0.0, 0.0, 0.0).abs().max()) if two.numel() else 0.0
        largest, relative = max(largest, difference), max(relative, difference / max(magnitude, 1e-12))
    return largest, relative


def _profiled(
    run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device
) -> tuple[int | None, dict[str, int]]:
    """GPU kernels of one call, and its attention operators and kernels."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_gpu else [])
    with profile(activities=activities) as profiler:
        run(*args, **kwargs)
        _synchronise(device)
    kernels = 0
    attention: dict[str, int] = {}
    for event in profiler.events() or ():
        is_kernel = event.device_type == torch.autograd.DeviceType.CUDA
        kernels += is_kernel
        if any(mark in event.name for mark in ATTENTION_MARKS):
            attention[event.name[:80]] = attention.get(event.name[:80], 0) + 1
    return (kernels if on_gpu else None), attention
