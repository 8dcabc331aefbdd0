"""Fusible subgraphs by prefix analysis (PassNet): runs of statements after whose first no further kernel is launched.

K(P) is how many kernels the first P statements launch. Where K does not grow, an operator was fused into a kernel that
was there before. So K's plateaus propose ranges, and each is then counted alone: it must not launch more than its first
statement does, one kernel as a rule. K is bisected, and over windows of the program, so that fewer and shorter
stretches are lowered. How kernels are counted is kernel_count.py's business, and cutting a range out is cutting.py's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
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
    num_ops = len(program.statements)
    if every_prefix:
        kernels = [counter.count(0, stop) for stop in range(num_ops + 1)]
    else:
        kernels = _segmented_curve(counter, num_ops)
    search = _Search(counter, program, min_ops, max_ops)
    ranges = [found for start, stop in plateaus(kernels) for found in search.confirmed(start, stop)]
    return FusibleReport(tuple(kernels[1:]), tuple(ranges), counter.num_compiles, backend)


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


def _segmented_curve(counter: KernelCounter, num_ops: int) -> list[int]:
    """K(0) to K(num_ops), counted anew from each library call on: no kernel has operators on both sides of one.

    So a segment is lowered alone, and a layer that repeats is the same segments again. What merges over a distance (a
    mask that is made at the start and read in every layer) is not seen; it is in no contiguous range either.
    """
    calls = [index for index, is_call in enumerate(counter.aten.library_calls) if is_call and index]
    kernels = [0]
    for start, stop in itertools.pairwise([0, *calls, num_ops]):
        base = kernels[-1]
        kernels += [base + count for count in _windowed_curve(counter, start, stop)[1:]]
    return kernels


def _windowed_curve(counter: KernelCounter, first: int, last: int) -> list[int]:
    """Kernels of the stretches from `first` to each of first .. last, in windows that overlap.

    A window that starts later adds what it counts beyond its lookback.
    """
    kernels = bisected(partial(counter.count, first), first, min(first + WINDOW, last))
    while len(kernels) <= last - first:
        known = first + len(kernels) - 1
        # from the start of a plateau if one is near: no kernel is cut in two there
        near = range(known - LOOKBACK - STEP, known - LOOKBACK + 1)
        start = max((first + start for start, _ in plateaus(kernels) if first + start in near), default=near[-1])
        counted = bisected(partial(counter.count, start), known, min(start + WINDOW, last))
        kernels += [kernels[-1] + count - counted[0] for count in counted[1:]]
    return kernels


def bisected(measure: Callable[[int], int], first: int, last: int) -> list[int]:
    """measure(first) to measure(last), where a stretch whose ends and middle agree is taken to be flat."""
    curve = {first: measure(first), last: measure(last)}
    waiting = [(first, last)]
    while waiting:
        low, high = waiting.pop()
        if high - low < 2:
            continue
        middle = (low + high) // 2
        curve[middle] = measure(middle)
        if curve[low] == curve[middle] == curve[high]:
            curve.update(dict.fromkeys(range(low, high), curve[low]))
        else:
            waiting += [(low, middle), (middle, high)]
    return [curve[position] for position in range(first, last + 1)]


@dataclass(frozen=True)
class _Search:
    """From a plateau to ranges that hold alone."""

    counter: KernelCounter
    program: Program
    min_ops: int
    max_ops: int

    def confirmed(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The stretch itself if alone it launches what its first statement launches, else the parts of it that do."""
        start, stop = self.trimmed(start, stop)
        if stop - start < self.min_ops or sum(self.counter.aten.launches[start:stop]) < MIN_LAUNCHES:
            return
        alone = partial(self.counter.count, start)
        if alone(stop) == 1 or alone(stop) == alone(start + 1):
            if stop - start <= self.max_ops:
                yield start, stop
                return
            parts = [(start, start + self.max_ops), (start + self.max_ops, stop)]
        else:
            # K of the whole program also falls when a far kernel is merged: look again from this start
            parts = [(start + low, start + high) for low, high in plateaus(bisected(alone, start, stop))]
            if parts == [(start, stop)]:
                parts = [(start + 1, stop)]
        for low, high in parts:
            yield from self.confirmed(low, high)

    def trimmed(self, start: int, stop: int) -> tuple[int, int]:
        """Without views at the front, and without views at the end of what the stretch does not make."""
        launches, statements = self.counter.aten.launches, self.program.statements
        while start < stop and not launches[start]:
            start += 1
        made = {statement.target for statement in statements[start:stop]}
        while start < stop and not launches[stop - 1] and not made.intersection(statements[stop - 1].reads):
            stop -= 1
        return start, stop
