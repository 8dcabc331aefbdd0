"""Fusible subgraphs by prefix analysis (PassNet): runs of statements after whose first no further kernel is launched.

K(P) is how many kernels the first P statements launch. Where K does not grow, an operator was fused into a kernel that
was there before. So K's plateaus propose ranges, and each is then counted alone: it must not launch more than its first
statement does, one kernel as a rule. K is bisected, and over windows of the program, so that fewer and shorter
stretches are lowered. How kernels are counted is kernel_count.py's business, and cutting a range out is cutting.py's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from data.construct.kernel_count import Backend, KernelCounter
from data.construct.statements import Program, parse_program
from data.graph import MODEL_FILE, Graph

MIN_OPS, MAX_OPS = 2, 35
"""Statements of a range: the sizes of PassNet's fusible graphs."""
MIN_LAUNCHES = 2
"""Statements of a range that compute something. One matmul and the views after it launch one kernel in eager too."""
WINDOW = 80
"""Statements that are lowered together at most: what all prefixes of a long program cost grows with its square."""
LOOKBACK, STEP = 40, 20
"""Statements of a window that the window before counted, at least, and those that it adds, at least. The lookback is
longer than MAX_OPS, so that no range is cut by a window's start."""


@dataclass(frozen=True)
class FusibleReport:
    """What prefix analysis found in one program."""

    kernels: tuple[int, ...]
    """K(1) to K(n). Inside a plateau whose ends agree it is the ends' value and not measured."""
    ranges: tuple[tuple[int, int], ...]
    """[start, stop) of statement indices, in order, not overlapping. Alone, each launches what its first statement does
    alone: one kernel, or the two of a group norm."""
    num_compiles: int
    """Stretches that went through the compiler; equal ones (repeated layers) count once."""
    backend: str
    """"cpu" or "cuda"."""


def analyse(
    graph: Graph,
    *,
    backend: Backend = "cpu",
    min_ops: int = MIN_OPS,
    max_ops: int = MAX_OPS,
    every_prefix: bool = False,
) -> FusibleReport:
    """Fusible ranges of a full graph, as indices of parse_program()'s statements.

    every_prefix: measure each K(P) from the first statement on, as the paper does; slow, for pictures and comparison.
    Raises MalformedGraphError for what does not run on fake tensors, KernelCountError for what Inductor refuses.
    """
    program = parse_program(graph.model_source, f"{graph.name}/{MODEL_FILE}")
    counter = KernelCounter(graph, program, backend=backend)
    curves = _Curves(counter, program)
    kernels = curves.every_prefix() if every_prefix else curves.segmented()
    found = _Search(curves, min_ops, max_ops).ranges(plateaus(kernels))
    return FusibleReport(tuple(kernels[1:]), tuple(found), counter.num_compiles, backend)


def plateaus(kernels: Sequence[int]) -> list[tuple[int, int]]:
    """Curve K(0) to K(n) -> [start, stop) of every stretch of statements after whose first K does not grow for good.

    A prefix may end between two halves of one kernel, and K rises there and falls again. So what counts is the least
    that K is from P on: it never falls, and two prefixes with the same least belong together.
    """
    least = list(kernels)
    for position in range(len(least) - 2, -1, -1):
        least[position] = min(least[position], least[position + 1])
    found: list[tuple[int, int]] = []
    for position in range(1, len(least)):
        if least[position] == 0:
            continue  # views of the arguments launch nothing
        if found and least[position] == least[position - 1]:
            found[-1] = (found[-1][0], position)
        else:
            found.append((position - 1, position))
    return found


def bisected(measure: Callable[[int], int], first: int, last: int, joins: Collection[int] = ()) -> list[int]:
    """measure(first) to measure(last), where a stretch whose ends and middle agree is taken to be flat.

    joins: positions where the curve may fall; no stretch that holds one is taken to be flat.
    """
    curve = {first: measure(first), last: measure(last)}
    waiting = [(first, last)]
    while waiting:
        low, high = waiting.pop()
        if high - low < 2:
            continue
        middle = (low + high) // 2
        curve[middle] = measure(middle)
        is_flat = curve[low] == curve[middle] == curve[high]
        if is_flat and not any(low < join < high for join in joins):
            curve.update(dict.fromkeys(range(low, high), curve[low]))
        else:
            waiting += [(low, middle), (middle, high)]
    return [curve[position] for position in range(first, last + 1)]


class _Curves:
    """K over a program, from its first statement or from a later one on."""

    def __init__(self, counter: KernelCounter, program: Program) -> None:
        self.count = counter.count
        self.launches = counter.aten.launches
        self.is_library_call = counter.aten.library_calls
        self.statements = program.statements
        # two kernels become one where a statement reads what both made
        self.joins = [
            statement.index + 1
            for statement in program.statements
            if len(program.definitions.keys() & set(statement.reads)) > 1
        ]

    def every_prefix(self) -> list[int]:
        return [self.count(0, stop) for stop in range(len(self.statements) + 1)]

    def segmented(self) -> list[int]:
        """K(0) to K(n), counted anew from each library call on: no kernel has operators on both sides of one.

        So a segment is lowered alone, and a layer that repeats is the same segments again. What merges over a distance
        (a mask that is made at the start and read in every layer) is not seen; it is in no contiguous range either.
        """
        calls = [index for index, is_call in enumerate(self.is_library_call) if is_call and index]
        kernels = [0]
        for start, stop in itertools.pairwise([0, *calls, len(self.statements)]):
            base = kernels[-1]
            counted = self._two_steps(start, stop) or self._windowed(start, stop)
            kernels += [base + count for count in counted[1:]]
        return kernels

    def _two_steps(self, first: int, last: int) -> list[int] | None:
        """The same for a segment that is a library call and one fused kernel, as most are; None if it is not."""
        fused = next((index for index in range(first + 1, last) if self.launches[index]), last)
        if not (self.is_library_call[first] and last - first <= WINDOW):
            return None
        call, both = self.count(first, first + 1), self.count(first, last)
        if fused < last and not (both == call + 1 and self.count(fused, last) == 1):
            return None
        return [0, *[call] * (fused - first), *[both] * (last - fused)]

    def _windowed(self, first: int, last: int) -> list[int]:
        """Kernels of the stretches from `first` to each of first .. last, in windows that overlap.

        A window that starts later adds what it counts beyond its lookback.
        """
        kernels = self.between(first, first, min(first + WINDOW, last))
        while len(kernels) <= last - first:
            known = first + len(kernels) - 1
            # from the start of a plateau if one is near: no kernel is cut in two there
            near = range(known - LOOKBACK - STEP, known - LOOKBACK + 1)
            start = max((first + start for start, _ in plateaus(kernels) if first + start in near), default=near[-1])
            counted = self.between(start, known, min(start + WINDOW, last))
            kernels += [kernels[-1] + count - counted[0] for count in counted[1:]]
        return kernels

    def between(self, start: int, first: int, last: int) -> list[int]:
        """Kernels of the stretches from `start` to each of first .. last, bisected."""
        return bisected(partial(self.count, start), first, last, self.joins)


@dataclass(frozen=True)
class _Search:
    """From plateaus to ranges that hold alone."""

    curves: _Curves
    min_ops: int
    max_ops: int

    def ranges(self, proposed: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Ranges of the plateaus, each as long as it can be."""
        confirmed = [found for start, stop in proposed for found in self.confirmed(start, stop)]
        ends = sorted({stop for _, stop in (*proposed, *confirmed)})
        found: list[tuple[int, int]] = []
        for start, stop in confirmed:
            if not found or start >= found[-1][1]:
                found.append((start, self.extended(start, stop, ends)))
        return found

    def confirmed(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The stretch itself if it holds alone, else the parts of it that do."""
        start, stop = self.trimmed(start, stop)
        if stop - start < self.min_ops or sum(self.curves.launches[start:stop]) < MIN_LAUNCHES:
            return
        if self.holds(start, stop):
            if stop - start <= self.max_ops:
                yield start, stop
                return
            parts = [(start, start + self.max_ops), (start + self.max_ops, stop)]
        else:
            # K of the whole program also falls when a far kernel is merged: look again from this start
            again = plateaus(self.curves.between(start, start, stop))
            parts = [(start + low, start + high) for low, high in again]
            if parts == [(start, stop)]:
                parts = [(start + 1, stop)]
        for low, high in parts:
            yield from self.confirmed(low, high)

    def holds(self, start: int, stop: int) -> bool:
        """Whether the stretch alone launches no more than its first statement does."""
        kernels = self.curves.count(start, stop)
        return kernels == 1 or kernels == self.curves.count(start, start + 1)

    def extended(self, start: int, stop: int, ends: Sequence[int]) -> int:
        """How far a range goes on over the plateaus after it: far kernels that merge can end one too early."""
        for end in ends:
            if end <= stop:
                continue
            longer = self.trimmed(start, end)[1]
            is_barred = any(self.curves.is_library_call[stop:longer]) or longer - start > self.max_ops
            if is_barred or not self.holds(start, longer):
                break
            stop = longer
        return stop

    def trimmed(self, start: int, stop: int) -> tuple[int, int]:
        """Without views at the front, and without views at the end of what the stretch does not make."""
        launches, statements = self.curves.launches, self.curves.statements
        while start < stop and not launches[start]:
            start += 1
        made = {statement.target for statement in statements[start:stop]}
        while start < stop and not launches[stop - 1] and not made.intersection(statements[stop - 1].reads):
            stop -= 1
        return start, stop
