"""Which batches a row is put in: a plan of contexts, ordered so that the first difference is found soon.

The largest batch is the reference: every needle is in it, so any other batch of needles is compared in all of its rows.
Then come sizes on both sides of 8, 16, 32, 64 and 128, from the most telling on; then rows in other places; then
neighbours that might leak. Small batches of few output elements are tried with several sets of rows: a float16 result
hides a reordered float32 sum in 999 of 1,000 elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from eval_harness.batch_invariance.row_pool import Filler

MAX_WINDOW = 16
"""Rows of the largest batch that is tried with several sets of rows."""


MIN_WINDOWS = 4


class Placement(StrEnum):
    """Where the needles lie in a batch."""

    WHOLE = "all rows"
    FIRST = "needles first"
    MIDDLE = "needles in the middle"
    LAST = "needles last"
    SPREAD = "needles spread"
    REVERSED = "rows reversed"
    SHUFFLED = "rows shuffled"


@dataclass(frozen=True)
class Context:
    """One batch."""

    rows: tuple[int, ...]
    """Pool rows, in order."""
    positions: tuple[int, ...]
    """Places in the batch whose outputs are compared."""
    placement: Placement = Placement.WHOLE
    filler: Filler = Filler.NEEDLES

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def needles(self) -> tuple[int, ...]:
        """Pool rows that are compared."""
        return tuple(self.rows[position] for position in self.positions)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its size is special."""
        return self.placement is Placement.WHOLE and self.filler is Filler.NEEDLES

    def __str__(self) -> str:
        """For a reader: "batch 65, needles last, fillers zeros"."""
        if self.is_plain:
            first = self.rows[0]
            last = f" to {first + self.size - 1}" if self.size > 1 else ""
            return f"batch {self.size}" + (f" (row{'s' if last else ''} {first}{last})" if first else "")
        filler = "" if self.filler is Filler.NEEDLES else f", fillers {self.filler}"
        return f"batch {self.size}, {self.placement}{filler}"


@dataclass(frozen=True)
class Composition:
    """Needles among fillers, in a batch of about `size` rows (0: the given batch)."""

    size: int
    placement: Placement
    filler: Filler


@dataclass(frozen=True)
class BatchLimits:
    """Batches that a kernel takes."""

    minimum: int = 1
    maximum: int | None = None
    multiple_of: int = 1

    def nearest(self, size: int, largest: int) -> int | None:
        """The size, rounded up to what is taken and at most `largest`; None where there is none."""
        top = largest if self.maximum is None else min(largest, self.maximum)
        rounded = -(-max(size, self.minimum) // self.multiple_of) * self.multiple_of
        return rounded if rounded <= top else None


_COMPOSITIONS = (
    Composition(65, Placement.REVERSED, Filler.NEEDLES),
    Composition(0, Placement.REVERSED, Filler.NEEDLES),
    Composition(33, Placement.SHUFFLED, Filler.NEEDLES),
    Composition(65, Placement.LAST, Filler.ZEROS),
    Composition(33, Placement.MIDDLE, Filler.LARGE),
    Composition(65, Placement.WHOLE, Filler.DUPLICATES),
    Composition(0, Placement.LAST, Filler.LARGE),
    Composition(17, Placement.FIRST, Filler.NAN),
    Composition(0, Placement.SPREAD, Filler.NAN),
)
_RAGGED = (
    Composition(17, Placement.LAST, Filler.LONG),
    Composition(65, Placement.FIRST, Filler.SHORT),
    Composition(0, Placement.SPREAD, Filler.LONG),
)
_ROUTING = (
    Composition(33, Placement.WHOLE, Filler.DUPLICATES),
    Composition(129, Placement.LAST, Filler.DUPLICATES),
    Composition(129, Placement.SHUFFLED, Filler.NEEDLES),
)


@dataclass(frozen=True)
class ContextPolicy:
    """What is tried for a family of kernels."""

    sizes: tuple[int, ...] = (8, 1, 65, 33, 17, 129, 2, 9, 4, 16, 64, 128, 32, 7, 96, 48, 24)
    """In this order, after the reference."""
    reference_size: int = 160
    """The largest batch, more than any threshold of 128 and than the processors of a GPU (132)."""
    far_sizes: tuple[int, ...] = (1040, 272)
    """Larger references, where their inputs take at most far_bytes; then reference_size is tried as a size."""
    far_bytes: int = 48 << 20
    max_bytes: int = 4 << 30
    """Inputs of the reference take at most this on a GPU: a smaller one is taken otherwise."""
    max_cpu_bytes: int = 1 << 30
    """The same on a CPU."""
    budget_s: float = 60.0
    """Contexts that have not begun after this are left out, and the verdict says how many."""
    compositions: tuple[Composition, ...] = _COMPOSITIONS
    max_windows: int = 8
    """Sets of rows a small size is tried with, at most."""
    min_elements: dict[int, int] = field(default_factory=lambda: {1: 256, 2: 8192, 4: 32, 8: 16})
    """Bytes of an output element -> elements of a small size that are compared, if max_windows allows."""

    @classmethod
    def for_family(cls, family: str | None) -> ContextPolicy:
        """The policy of a dotted family; an unknown one gets the general policy."""
        parts = (family or "").split(".")
        if parts[0] == "moe":
            return cls(compositions=_ROUTING + _COMPOSITIONS)
        if parts[0] == "sampling":
            # a draw from probabilities that are NaN trips an assertion on the device, which ends the process
            return cls(compositions=tuple(c for c in _COMPOSITIONS if c.filler is not Filler.NAN))
        if parts[0] in ("attention", "linear_attention"):
            return cls(compositions=_RAGGED + _COMPOSITIONS)
        return cls()

    def without_sizes(self) -> ContextPolicy:
        """For a batch that has one size only: composition and position are left."""
        return replace(self, sizes=(), far_sizes=())

    def num_needles(self, given: int, row_bytes: int, limits: BatchLimits, *, is_ragged: bool, on_gpu: bool) -> int:
        """Rows of the largest batch that is tried, of a batch that can be resized."""
        far = () if is_ragged or limits.maximum is not None else self.far_sizes
        for size in far:
            if size * row_bytes <= self.far_bytes and limits.nearest(size, size) == size:
                return size
        wanted = max(self.reference_size, given)
        max_bytes = self.max_bytes if on_gpu else self.max_cpu_bytes
        fitting = min(wanted, max(max_bytes // max(row_bytes, 1), given))
        found = limits.nearest(fitting - limits.multiple_of + 1, fitting)
        return given if found is None else found


@dataclass(frozen=True)
class PoolShape:
    """What a plan must know of the pool and of the outputs."""

    num_needles: int
    base: int
    """Rows of the given batch."""
    fillers: dict[Filler, int]
    output_bytes: int
    """Bytes of an element of the narrowest output."""
    row_elements: int
    """Elements of that output in one row, about."""
    by_length: tuple[int, ...] = ()
    """Pool rows from the shortest to the longest, where rows are ragged."""


def plan_contexts(policy: ContextPolicy, pool: PoolShape, limits: BatchLimits) -> list[Context]:
    """The contexts in the order in which they are tried, the reference first; none twice."""
    ordered = dict.fromkeys(_plan(policy, pool, limits))
    return list(ordered)


def _plan(policy: ContextPolicy, pool: PoolShape, limits: BatchLimits) -> Iterator[Context]:
    count = pool.num_needles
    yield _window(count, 0)
    wanted = [*policy.sizes]
    if wanted:
        wanted[1:1] = [pool.base]
        wanted += [size for size in (policy.reference_size, *policy.far_sizes) if size < count]
    sizes = list(dict.fromkeys(s for s in (limits.nearest(size, count) for size in wanted) if s is not None))
    # one row alone is a cancelling one: of one row there must be most to see
    yield from (_window(size, 1 if size == 1 and count > 1 else 0) for size in sizes)
    for composition in policy.compositions:
        size = limits.nearest(composition.size or pool.base, count) if wanted else pool.base
        if size is not None and (context := _compose(composition, size, pool)) is not None:
            yield context
    for size in sorted(size for size in sizes if size <= MAX_WINDOW):
        yield from (_window(size, start) for start in _windows(policy, pool, size))


def _windows(policy: ContextPolicy, pool: PoolShape, size: int) -> Iterator[int]:
    """First rows of further windows of one size."""
    elements = max(size * pool.row_elements, 1)
    num = min(-(-policy.min_elements[min(pool.output_bytes, 8)] // elements), policy.max_windows)
    if size == 1 or (pool.by_length and size <= 4):
        # what follows the longest row, or another value of the batch, shows where that row is not there
        num = max(num, MIN_WINDOWS)
    for index in range(num):
        start = index * size
        if start + size <= pool.num_needles:
            yield start


def _window(size: int, start: int) -> Context:
    return Context(tuple(range(start, start + size)), tuple(range(size)))


def _compose(composition: Composition, size: int, pool: PoolShape) -> Context | None:
    placement, filler = composition.placement, composition.filler
    everywhere = tuple(range(size))
    if filler is Filler.DUPLICATES and placement is Placement.WHOLE:
        # of row 1, a cancelling one
        return Context((min(1, pool.num_needles - 1),) * size, everywhere, placement, filler) if size > 1 else None
    if placement is Placement.REVERSED:
        return Context(everywhere[::-1], everywhere, placement, filler) if size > 1 else None
    if placement is Placement.SHUFFLED:
        order = np.random.default_rng(size).permutation(size)
        return Context(tuple(int(row) for row in order), everywhere, placement, filler) if size > 1 else None
    row = 0 if filler is Filler.DUPLICATES else pool.fillers.get(filler)
    if row is None or size < 2:
        return None
    num_needles = min(pool.base, 8, size - 1, max(size // 2, 1))
    positions = _positions(placement, size, num_needles)
    rows = [row] * size
    needles: Sequence[int] = range(num_needles)
    if filler is Filler.SHORT and len(pool.by_length) >= 2 * num_needles:
        # among the shortest, and none of the long rows anywhere
        start = len(pool.by_length) // 4
        needles = pool.by_length[start : start + num_needles]
    for needle, position in zip(needles, positions, strict=True):
        rows[position] = needle
    return Context(tuple(rows), positions, placement, filler)


def _positions(placement: Placement, size: int, num_needles: int) -> tuple[int, ...]:
    if placement is Placement.SPREAD:
        return tuple(index * size // num_needles + (size // num_needles) // 2 for index in range(num_needles))
    start = {Placement.FIRST: 0, Placement.MIDDLE: (size - num_needles) // 2}.get(placement, size - num_needles)
    return tuple(range(start, start + num_needles))
