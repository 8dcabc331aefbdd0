"""find_batch_layout: the batch axis of a graph, from the reference alone (float64, on the CPU).

TLDR: shrink -> trace, draw -> one leading row? grow it -> guess axes from changed slices -> check guesses on rows and
permutations -> the first that can be resized -> again at full size. A parameter is never of a batch. Where several axes
hold (a pointwise graph), the leading one is taken: what is needed is that rows are independent, not that they are the
requests of users.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from data.graph import Graph
from eval_harness.batch_invariance.axis_asked import Asked, shapes_of
from eval_harness.batch_invariance.axis_candidates import Guess, Guesser
from eval_harness.batch_invariance.axis_check import Checker, Found
from eval_harness.batch_invariance.axis_growth import Grown, ambiguous_inputs, grown
from eval_harness.batch_invariance.axis_ranking import Held, left_out
from eval_harness.batch_invariance.axis_reference import ReferenceRefused
from eval_harness.batch_invariance.axis_resize import Resized, resize
from eval_harness.batch_invariance.axis_shrink import SHRUNK_ABOVE, carried, num_elements, shrunk
from eval_harness.batch_invariance.row_axis import BatchLayout, NotApplicable, RowAxis

__all__ = ["BatchLayout", "NotApplicable", "RowAxis", "find_batch_layout"]

MAX_ELEMENTS = 1 << 26
"""Of all inputs together (0.5 GB in float64): a graph beyond it is not run."""
MAX_GUESSES = 96
"""Checked for one graph; a pointwise graph needs one, a graph without a row axis all of them."""
MAX_HELD = 6
"""Axes that hold and cannot be resized, before the first of them is taken."""
_EXTRA_ROWS = 1


def find_batch_layout(graph: Graph, *, seed: int = 0) -> BatchLayout | NotApplicable:
    """Where the batch lies in each input and output of the graph, or why there is none. Raises nothing of torch's."""
    if num_elements(graph) > MAX_ELEMENTS:
        return NotApplicable(f"{num_elements(graph)} elements of inputs; the search runs no more than {MAX_ELEMENTS}")
    try:
        return _find(graph, seed)
    except ReferenceRefused as error:
        return NotApplicable(str(error))
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        # an operator of torch on values of a kind that the search did not foresee
        return NotApplicable(f"the search did not run: {' '.join(str(error).split())[:200]}")


def _find(graph: Graph, seed: int) -> BatchLayout | NotApplicable:
    small = shrunk(graph) if num_elements(graph) > SHRUNK_ABOVE else graph
    search = _Search(Asked.begin(small, seed))
    found = search.find()
    if small is graph or isinstance(found, NotApplicable):
        return found
    whole = _Search(Asked.begin(graph, seed))
    layout = carried(found, small, graph, shapes_of(search.asked.base), shapes_of(whole.asked.base))
    if layout is not None and (layout := whole.confirmed(layout)) is not None:
        return layout
    return whole.find()


class _Search:
    """Goes through the guesses of one graph."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.guesser = Guesser(asked.reference, asked.draws, asked.base)
        self.checker = Checker(asked.reference, asked.draws, asked.base, self.guesser, asked.parameters, asked.seed)
        self.why_not = ""
        """The reason of the first guess that did not hold."""

    def find(self) -> BatchLayout | NotApplicable:
        if reason := self.asked.why_hopeless():
            return NotApplicable(reason)
        shapes = [x.shape for _, x in self.asked.tensors]
        most = max((len(shape) for shape in shapes), default=0)
        # only where all of the largest inputs have one row: beside inputs of two rows it is a broadcast
        single = all(shape[0] == 1 for shape in shapes if len(shape) == most > 1)
        if single and (found := self._grown(dim=0)):
            return found
        held = self._as_it_is()
        if held is not None and (single or held.is_leading):
            return held.layout
        # a deeper axis gives way to a batch of one row: queries [1, heads, s, s] beside a mask [s, s, 1, 1]
        found = None if single else self._grown(dim=0)
        if found := found or (held.layout if held else None) or self._grown(dim=1):
            return found
        return NotApplicable(self._reason())

    def confirmed(self, layout: BatchLayout) -> BatchLayout | None:
        """A layout from smaller sizes, if it holds at these, by few runs."""
        if layout.size > 1 and not self.checker.holds(layout):
            return None
        found = Found(list(layout.inputs), list(layout.outputs), layout.size, ())
        resizable = layout.resizable and self._resized(found) is not None
        if layout.size == 1 and not resizable:
            return None
        return replace(layout, resizable=resizable)

    def _as_it_is(self) -> Held | None:
        """The first axis that holds, can be resized and takes every large input; else the best of those that hold."""
        held: list[Held] = []
        for guess in islice(self.guesser.guesses([index for index, _ in self.asked.tensors]), MAX_GUESSES):
            if any(entry.is_final(guess) for entry in held):
                break
            if any(entry.covers(guess) for entry in held):
                continue
            found = self.checker.check(guess)
            if isinstance(found, str):
                self._note(guess, found)
                continue
            resized = self._resized(found)
            inputs = tuple(resized.inputs if resized else found.inputs)
            layout = BatchLayout(inputs, tuple(found.outputs), found.num_rows, resizable=resized is not None)
            counted = [pair for pair in self.asked.tensors if pair[0] not in found.untouched]
            held.append(Held(layout, guess, left_out(layout, counted)))
            if len(held) == MAX_HELD:
                break
        return min(held, key=lambda entry: entry.rank, default=None)

    def _resized(self, found: Found) -> Resized | None:
        """The graph with one row more. An input that changes nothing may still give it a shape, and then follows."""
        asked = self.asked
        for axes in self._with_followers(found):
            resized = resize(
                asked.reference, axes, found.outputs, asked.draws.base, asked.base,
                found.num_rows, found.num_rows + _EXTRA_ROWS, seed=asked.seed + 1,
            )  # fmt: skip
            if resized is not None:
                return resized
        return None

    def _with_followers(self, found: Found) -> list[list[RowAxis | None]]:
        followers = list(found.inputs)
        for index in found.untouched:
            shape = self.asked.draws.base[index].shape
            same_size = [dim for dim, size in enumerate(shape) if size == found.num_rows]
            if same_size:
                followers[index] = RowAxis(same_size[0])
        return [found.inputs] if followers == found.inputs else [found.inputs, followers]

    def _grown(self, dim: int) -> BatchLayout | None:
        """The axis of a graph with a single row, found where it has several."""
        asked = self.asked
        for candidate in grown(
            asked.reference, asked.draws, asked.base, asked.parameters, dim, asked.seed, asked.sparse
        ):
            layout = self._of_grown(candidate)
            if layout is not None:
                return layout
        return None

    def _of_grown(self, candidate: Grown) -> BatchLayout | None:
        asked = replace(self.asked, reference=candidate.reference, draws=candidate.draws, base=candidate.base)
        search = _Search(asked)
        seeds = [index for index, axis in enumerate(candidate.inputs) if axis is not None]
        for guess in islice(search.guesser.guesses(seeds), MAX_GUESSES):
            if guess.in_axis != candidate.inputs[guess.input]:
                continue
            found = search.checker.check(guess)
            if isinstance(found, str):
                self._note(guess, found)
                continue
            axes = [
                axis if axis is not None or index not in found.untouched else candidate.inputs[index]
                for index, axis in enumerate(found.inputs)
            ]
            if axes == list(candidate.inputs):
                ambiguous = ambiguous_inputs(candidate)
                return BatchLayout(tuple(axes), tuple(found.outputs), 1, resizable=True, ambiguous=ambiguous)
        return None

    def _note(self, guess: Guess, reason: str) -> None:
        self.why_not = self.why_not or f"along {guess.in_axis} of {self.asked.name(guess.input)}, {reason}"

    def _reason(self) -> str:
        if self.why_not:
            return f"no axis is row-wise independent: {self.why_not}"
        if all(x.dim() == 0 or x.shape[0] == 1 for _, x in self.asked.tensors):
            return "there is only one row along dim 0, the graph does not run with more, and no other axis will do"
        touched = any(
            changed is None or bool(changed.any())
            for index, x in enumerate(self.asked.draws.base)
            for dim in range(min(x.dim(), 1))
            for found in self.guesser.slices(index, dim)
            for changed in found.changed
        )
        if not touched:
            return "no output changes with an input"
        return "no axis is row-wise independent: changing a slice of any input changes every slice of the outputs"
