"""What a row's bits depend on, once they are known to: size, company or place. A few more calls, not timed.

One difference between two batches says little, for size, neighbours and positions change together. Here one changes at
a time, and the sizes are sorted into classes of equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from eval_harness.batch_invariance.bits import differ
from eval_harness.batch_invariance.contexts import BatchLimits, Context, Placement
from eval_harness.batch_invariance.row_pool import Filler
from eval_harness.batch_invariance.runner import CallError
from eval_harness.batch_invariance.trials import Mismatch, Trials

SIZES = (1, 8, 16, 17, 32, 33, 64, 65, 128, 129)


@dataclass(frozen=True)
class Explanation:
    """Which changes of a batch change a row's bits."""

    by_size: bool
    """Only the number of rows changed: all of them are copies of one."""
    by_company: bool
    """The size stayed, the needles stayed in place, their neighbours changed."""
    by_place: bool
    """The size and the set of rows stayed, their order changed."""
    classes: tuple[tuple[int, ...], ...] = ()
    """Sizes of batches of copies of one row, those with equal bits together."""
    step: tuple[int, int] | None = None
    """Two neighbouring sizes with different bits."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "by_size": self.by_size,
            "by_company": self.by_company,
            "by_place": self.by_place,
            "classes": [list(sizes) for sizes in self.classes],
            "step": list(self.step) if self.step else None,
        }


def explain(trials: Trials, mismatch: Mismatch, contexts: Sequence[Context], limits: BatchLimits) -> Explanation:
    """Change one thing at a time. Batches that the kernel refuses are left out."""
    reference = trials.reference_context
    assert reference is not None
    size, count = mismatch.context.size, reference.size
    by_place = _differs(trials, _reversed(reference)) or False
    by_company = _company_matters(trials, mismatch.context, reference)
    is_fixed = all(context.size == count for context in contexts)
    if is_fixed:
        return Explanation(False, by_company, by_place)
    # copies of the row that showed it, in batches of several sizes: nothing but the size differs
    row = next((row for row in mismatch.rows(trials.pool)), 0)
    sizes = sorted({s for wanted in (*SIZES, size, count) if (s := limits.nearest(wanted, count)) is not None})
    outputs = {s: values for s in sizes if (values := _leading_row(trials, row, s)) is not None}
    classes = _classes(outputs)
    step = _step(trials, row, outputs, limits) if len(classes) > 1 else None
    by_size = len(classes) > 1
    return Explanation(by_size, by_company or not (by_size or by_place), by_place, tuple(classes), step)


def _company_matters(trials: Trials, context: Context, reference: Context) -> bool:
    """The reference's size and half of its rows in place, other neighbours; or the context's own fillers."""
    count = reference.size
    half = max(count // 2, 1)
    if count < 2:
        return False
    others = tuple(reversed(range(half, count)))
    swapped = Context(tuple(range(half)) + others, tuple(range(half)), Placement.FIRST, Filler.NEEDLES)
    doubled = Context(tuple(range(half)) + (0,) * (count - half), tuple(range(half)), Placement.FIRST)
    tried = [swapped, doubled]
    if not context.is_plain and context.filler in trials.pool.fillers:
        filler = trials.pool.fillers[context.filler]
        tried.append(Context(tuple(range(half)) + (filler,) * (count - half), tuple(range(half)), Placement.FIRST))
    return any(_differs(trials, batch) for batch in tried)


def _reversed(reference: Context) -> Context:
    return Context(reference.rows[::-1], tuple(range(reference.size)), Placement.REVERSED)


def _differs(trials: Trials, context: Context) -> bool | None:
    try:
        return bool(trials.flag(context, trials.call(context)))
    except CallError:
        return None


def _leading_row(trials: Trials, row: int, size: int) -> list[torch.Tensor] | None:
    """Outputs of a pool row in a batch of `size` copies of it: those of the first."""
    context = Context((row,) * size, (0,))
    try:
        outputs = trials.call(context)
    except CallError:
        return None
    return [rows.take(trials.pool.indices.of((0,)), trials.pool.indices).clone() for rows in outputs]


def _classes(outputs: dict[int, list[torch.Tensor]]) -> list[tuple[int, ...]]:
    found: list[tuple[list[torch.Tensor], list[int]]] = []
    for size, values in outputs.items():
        for known, sizes in found:
            if _equal(known, values):
                sizes.append(size)
                break
        else:
            found.append((values, [size]))
    return [tuple(sizes) for _, sizes in found]


def _step(
    trials: Trials, row: int, outputs: dict[int, list[torch.Tensor]], limits: BatchLimits
) -> tuple[int, int] | None:
    """Neighbouring sizes with different bits, by halving the first gap between two classes."""
    sizes = sorted(outputs)
    pairs = [(a, b) for a, b in pairwise(sizes) if not _equal(outputs[a], outputs[b])]
    if not pairs:
        return None
    low, high = pairs[-1]
    while high - low > limits.multiple_of:
        middle = limits.nearest((low + high) // 2, high)
        if middle is None or middle >= high or middle <= low:
            break
        values = _leading_row(trials, row, middle)
        if values is None:
            break
        if _equal(values, outputs[low]):
            low, outputs[middle] = middle, values
        else:
            high, outputs[middle] = middle, values
    return low, high


def _equal(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return not any(bool(differ(a, b)) for a, b in zip(left, right, strict=True))
