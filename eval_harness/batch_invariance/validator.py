"""The dynamic validator: does a row give the same bits whatever shares its batch? Decided by running the kernel.

Rows are pooled (row_pool.py), batches of them planned (contexts.py), run and compared (trials.py), and judged
(validation.py). It does not say why by reading code (static/ does), and it does not find the batch axis (batch_axis.py
does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from eval_harness.batch_invariance.contexts import BatchLimits, ContextPolicy
from eval_harness.batch_invariance.dynamic_result import DynamicOutcome, DynamicResult
from eval_harness.batch_invariance.kernel_nursery import KernelNursery
from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis
from eval_harness.batch_invariance.row_pool import Layout, RowPool
from eval_harness.batch_invariance.rows import Axis, PointerAxis, RaggedAxis, RaggedLayout
from eval_harness.batch_invariance.runner import CallableRunner, Runner
from eval_harness.batch_invariance.trials import Trials
from eval_harness.batch_invariance.validation import Validation

__all__ = ["BatchLimits", "DynamicOutcome", "DynamicResult", "validate", "validate_kernel"]


def validate_kernel(
    run: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    in_axes: Sequence[int | Axis | None],
    out_axes: Sequence[int | RowAxis | RaggedAxis | None],
    family: str | None = None,
    policy: ContextPolicy | None = None,
    limits: BatchLimits | None = None,
    seed: int = 0,
    confirm: bool = True,
    repeats: int = 0,
    source: Path | None = None,
    nursery: KernelNursery | None = None,
) -> DynamicResult:
    """Whether run(*inputs) is batch-invariant; axes say where rows lie (None: shared by all rows, or no rows).

    source: the file that defines `run` under that name, for fresh processes; a module-level function needs none.
    nursery: what forks them; share one among many calls.
    ValueError where inputs and axes do not fit each other.
    """
    layout = declared_layout(inputs, in_axes, out_axes)
    runner = CallableRunner(run, source=source, nursery=nursery)
    try:
        return validate(
            runner,
            inputs,
            layout,
            policy=policy,
            limits=limits,
            seed=seed,
            confirm=confirm,
            repeats=repeats,
            family=family,
        )
    finally:
        runner.close()


def declared_layout(
    inputs: Sequence[Any], in_axes: Sequence[int | Axis | None], out_axes: Sequence[int | RowAxis | RaggedAxis | None]
) -> Layout:
    """The layout of declared axes; the batch size is read off the inputs. ValueError if they disagree."""
    if len(in_axes) != len(inputs):
        raise ValueError(f"{len(inputs)} inputs and {len(in_axes)} in_axes: give one axis (or None) for each input")
    ins = tuple(
        _axis(axis, x.dim() if isinstance(x, torch.Tensor) else 0) for axis, x in zip(in_axes, inputs, strict=True)
    )
    outs = tuple(_axis(axis, 0) for axis in out_axes)
    sizes = {
        index: axis.size(inputs[index]) if isinstance(axis, RowAxis) else len(inputs[index]) - 1
        for index, axis in enumerate(ins)
        if isinstance(axis, RowAxis | PointerAxis)
    }
    if len(set(sizes.values())) != 1:
        raise ValueError(f"rows of the inputs by in_axes: {sizes or 'none'}; they must agree, and there must be some")
    if all(axis is None for axis in outs):
        raise ValueError("out_axes name no output with a batch axis: there is nothing to compare")
    size = next(iter(sizes.values()))
    if any(isinstance(axis, RaggedAxis | PointerAxis) for axis in (*ins, *outs)):
        return RaggedLayout(ins, outs, size)  # type: ignore[arg-type]
    return BatchLayout(ins, outs, size, resizable=True)  # type: ignore[arg-type]


def _axis(axis: int | Axis | None, num_dims: int) -> Axis | None:
    if not isinstance(axis, int):
        return axis
    if axis < 0 and num_dims == 0:
        raise ValueError(f"out_axes {axis}: count an output's dimensions from the front")
    return RowAxis(axis + num_dims if axis < 0 else axis)


def validate(
    runner: Runner,
    inputs: Sequence[Any],
    layout: Layout,
    *,
    policy: ContextPolicy | None = None,
    seed: int = 0,
    confirm: bool = True,
    family: str | None = None,
    base: int | None = None,
    limits: BatchLimits | None = None,
    repeats: int = 0,
) -> DynamicResult:
    """Whether a row's bits depend on its batch (DESIGN 7; BIEvolve's dynamic validation).

    base: the batch to begin with, where the inputs hold more rows than that. repeats: how often the gate is timed anew
    once everything is compiled; 0 takes the time of the only pass. Raises HarnessError for failures that are ours.
    """
    policy = policy or ContextPolicy.for_family(family)
    limits = limits or BatchLimits()
    if not layout.resizable:
        policy = policy.without_sizes()
    count = layout.size
    if layout.resizable:
        count = policy.num_needles(
            layout.size,
            _row_bytes(inputs, layout),
            limits,
            is_ragged=isinstance(layout, RaggedLayout),
            on_gpu=any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs),
        )
    pool = RowPool(inputs, layout, num_needles=count, seed=seed)
    validation = Validation(Trials(runner, pool), policy, limits, base or layout.size, family)
    return validation.run(confirm, repeats)


def _row_bytes(inputs: Sequence[Any], layout: Layout) -> int:
    total = sum(
        x.nbytes
        for axis, x in zip(layout.inputs, inputs, strict=True)
        if isinstance(axis, RowAxis | RaggedAxis) and isinstance(x, torch.Tensor)
    )
    return max(total // max(layout.size, 1), 1)
