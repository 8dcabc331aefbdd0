"""Contexts run and compared: outputs of needles against those of the reference batch, bit by bit, on the device.

Inputs of a group of contexts are built first; then the clock runs over launches, comparisons and one wait. A kernel
that writes to what all rows share is found out, and from then on gets copies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from eval_harness.batch_invariance.bits import bits_of, differ
from eval_harness.batch_invariance.contexts import Context
from eval_harness.batch_invariance.row_axis import RowAxis
from eval_harness.batch_invariance.row_pool import RowPool
from eval_harness.batch_invariance.rows import DenseRows, RaggedAxis, RaggedRows, Rows, Selection
from eval_harness.batch_invariance.runner import CallError, Runner

FIRST_GROUP = 2
"""Contexts before the first wait; each later group is twice as large: an early exit comes soon, and few waits."""
MAX_GROUP = 16
GROUP_BYTES = 1 << 30
"""Of inputs that are built ahead."""


@dataclass
class Timing:
    """Where the milliseconds went."""

    run_ms: float = 0.0
    """Launches, comparisons and waits."""
    build_ms: float = 0.0
    """Inputs of batches."""


@dataclass(frozen=True)
class Mismatch:
    """A context whose bits differ from the reference's, and the outputs of both."""

    context: Context
    output: int
    """Which of the outputs that have a batch axis."""
    got: torch.Tensor
    """Needles of the context."""
    expected: torch.Tensor
    """The same rows of the reference."""
    needles: tuple[int, ...]
    """Pool rows of both, in order."""
    axis: RowAxis | RaggedAxis
    """Where rows lie in both."""

    def rows(self, pool: RowPool) -> tuple[int, ...]:
        """Pool rows that differ, in order. Waits for the device."""
        axis = self.axis
        unequal = bits_of(self.got) != bits_of(self.expected)
        needles = self.needles
        if isinstance(axis, RaggedAxis):
            elements = unequal.movedim(axis.dim, 0).flatten(1).any(1) if unequal.dim() > 1 else unequal
            lengths = torch.tensor(pool.lengths(axis.pointers, needles))
            places = torch.repeat_interleave(torch.arange(len(needles)), lengths)[elements.cpu()]
        else:
            places = axis.by_row(unequal).any(1).nonzero()[:, 0]
        return tuple(dict.fromkeys(needles[int(place)] for place in places))


@dataclass
class Tally:
    """What became of the contexts of a pass."""

    compared: list[Context] = field(default_factory=list)
    refused: list[tuple[Context, str]] = field(default_factory=list)
    differs: Context | None = None
    """The first whose bits are not the reference's; nothing was compared after it."""
    lost: str | None = None
    """Why no further call can succeed."""
    num_dropped: int = 0
    """Contexts that were not begun in time."""


class Trials:
    """One runner, one pool, and the outputs of the reference."""

    def __init__(self, runner: Runner, pool: RowPool) -> None:
        self.runner = runner
        self.pool = pool
        self.copy_shared = False
        self.reference: list[Rows] = []
        self.reference_context: Context | None = None
        self._kinds: list[tuple[torch.dtype, tuple[int, ...]]] = []
        self._pristine = [tensor.clone() for tensor in pool.shared()]

    def call(self, context: Context, runner: Runner | None = None, inputs: list[Any] | None = None) -> list[Rows]:
        """The outputs of one batch as rows. Raises CallError, for outputs of a wrong size too."""
        inputs = inputs if inputs is not None else self.inputs(context)
        outputs = (runner or self.runner).run(inputs)
        try:
            found = self.pool.output_rows(outputs, context.rows)
        except (ValueError, IndexError) as error:
            raise CallError(str(error)) from None
        if self.reference and (kinds := [_kind(rows) for rows in found]) != self._kinds:
            raise CallError(f"rows of dtype and shape {kinds}, and {self._kinds} in the largest batch")
        return found

    def inputs(self, context: Context) -> list[Any]:
        return self.pool.inputs(context.rows, copy_shared=self.copy_shared)

    def set_reference(self, context: Context, outputs: list[Rows]) -> None:
        """Keep a copy: a kernel may return a buffer that it uses again."""
        self.reference = [_own(rows) for rows in outputs]
        self.reference_context = context
        self._kinds = [_kind(rows) for rows in self.reference]

    def selections(self, context: Context) -> tuple[Selection, Selection]:
        """Places of a context that can be compared, and their rows in the reference."""
        assert self.reference_context is not None
        size = self.reference_context.size
        # all places of needles, unless the largest batch was refused
        known = tuple(position for position in context.positions if context.rows[position] < size)
        return self.pool.indices.of(known), self.pool.indices.of(tuple(context.rows[position] for position in known))

    def pairs(
        self, outputs: Sequence[Rows], selections: tuple[Selection, Selection]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Needles of a context beside the same rows of the reference, for each output."""
        places, rows = selections
        indices = self.pool.indices
        return [
            (got.take(places, indices), expected.take(rows, indices))
            for got, expected in zip(outputs, self.reference, strict=True)
        ]

    def flag(
        self, context: Context, outputs: Sequence[Rows], selections: tuple[Selection, Selection] | None = None
    ) -> torch.Tensor:
        """Whether any needle differs, as a scalar on the device."""
        pairs = self.pairs(outputs, selections or self.selections(context))
        flags = [differ(got, expected) for got, expected in pairs]
        return flags[0] if len(flags) == 1 else torch.stack(flags).any()

    def run_pass(self, contexts: Sequence[Context], timing: Timing, *, budget_s: float = math.inf) -> Tally:
        """Contexts in order until one differs; those that the kernel refuses are left out, as are late ones."""
        tally = Tally()
        deadline = time.perf_counter() + budget_s
        left, size = list(contexts), FIRST_GROUP
        while left and tally.differs is None and tally.lost is None:
            group, left = self._split(left, size)
            self._run_group(group, tally, timing)
            size = min(size * 2, MAX_GROUP)
            if time.perf_counter() > deadline and tally.differs is None:
                tally.num_dropped = len(left)
                break
        return tally

    def shared_changed(self) -> bool:
        """Whether the kernel wrote to what all rows share. Waits for the device."""
        return any(
            bool((bits_of(kept) != bits_of(now)).any())
            for kept, now in zip(self._pristine, self.pool.shared(), strict=True)
            if kept.numel()
        )

    def restore_shared(self) -> None:
        """Undo what the kernel wrote, and give it copies from now on."""
        for kept, now in zip(self._pristine, self.pool.shared(), strict=True):
            now.copy_(kept)
        self.copy_shared = True

    def wait(self) -> None:
        if self.pool.device.type == "cuda":
            try:
                torch.cuda.synchronize(self.pool.device)
            except RuntimeError as error:
                raise CallError(" ".join(str(error).split())[:300], is_fatal=True) from None

    def _split(self, contexts: list[Context], size: int) -> tuple[list[Context], list[Context]]:
        total, count = 0, 0
        for context in contexts[:size]:
            total += self.pool.num_bytes(context.size)
            if count and total > GROUP_BYTES:
                break
            count += 1
        return contexts[:count], contexts[count:]

    def _run_group(self, group: Sequence[Context], tally: Tally, timing: Timing) -> None:
        start = time.perf_counter()
        try:
            built = [self.inputs(context) for context in group]
            selections = [self.selections(context) for context in group]
            self.wait()
        except (CallError, torch.OutOfMemoryError) as error:
            tally.refused += [(context, f"inputs: {error}") for context in group]
            return
        begun = time.perf_counter()
        timing.build_ms += (begun - start) * 1e3
        done: list[Context] = []
        flags: list[torch.Tensor] = []
        for index, context in enumerate(group):
            try:
                outputs = self.call(context, inputs=built[index])
                flags.append(self.flag(context, outputs, selections[index]))
                done.append(context)
            except CallError as error:
                tally.refused.append((context, str(error)))
                if error.is_fatal:
                    tally.lost = str(error)
                    break
        try:
            found = torch.stack(flags).tolist() if flags else []
        except RuntimeError as error:
            tally.lost = " ".join(str(error).split())[:300]
            found = []
        timing.run_ms += (time.perf_counter() - begun) * 1e3
        for context, differs in zip(done, found, strict=False):
            tally.compared.append(context)
            if differs:
                tally.differs = context
                return

    def mismatch(self, context: Context, outputs: Sequence[Rows]) -> Mismatch | None:
        """The first output whose needles differ, with copies of what was compared; None if none does."""
        selections = self.selections(context)
        for index, (got, expected) in enumerate(self.pairs(outputs, selections)):
            if bool(differ(got, expected)):
                rows = outputs[index]
                declared = [axis for axis in self.pool.layout.outputs if axis is not None][index]
                axis = rows.axis if isinstance(rows, DenseRows) else declared
                return Mismatch(context, index, got.clone(), expected.clone(), selections[1].rows, axis)
        return None


def _kind(rows: Rows) -> tuple[torch.dtype, tuple[int, ...]]:
    """Dtype, and sizes with that of one row along the dimension of rows (0 where they are ragged)."""
    dim, factor = (rows.axis.dim, rows.axis.factor) if isinstance(rows, DenseRows) else (rows.dim, 0)
    shape = tuple(rows.tensor.shape)
    return rows.tensor.dtype, (*shape[:dim], factor, *shape[dim + 1 :])


def _own(rows: Rows) -> Rows:
    if isinstance(rows, DenseRows):
        return DenseRows(rows.tensor.clone(), rows.axis)
    return RaggedRows(rows.tensor.clone(), rows.dim, rows.lengths)
