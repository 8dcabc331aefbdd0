"""Does a guessed row axis hold for the whole graph? Finds each input's axis, then tries rows and permutations.

Properties, in float64: a row that is changed (another draw, large values, NaN) changes its own row of an output and no
other; rows in another order give the outputs in that order; copies of one row give copies of its outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from eval_harness.batch_invariance.axis_candidates import Guess, Guesser, axes_of, difference, is_within_row
from eval_harness.batch_invariance.axis_reference import KINDS, Draws, Reference, ReferenceRefused, same
from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis

PERMUTED_RTOL = 1e-7
"""Between float64 runs whose rows are in another order: a kernel may sum a row in another order there."""

Axes = list[RowAxis | None]
Changed = list[torch.Tensor | None]


@dataclass(frozen=True)
class Found:
    """Axes that hold. untouched: inputs that changed nothing and that were not given an axis."""

    inputs: Axes
    outputs: Axes
    num_rows: int
    untouched: tuple[int, ...]


class Checker:
    """Checks guesses on one graph and one draw."""

    def __init__(
        self,
        reference: Reference,
        draws: Draws,
        base: list[torch.Tensor | None],
        guesser: Guesser,
        parameters: frozenset[int],
        seed: int,
    ) -> None:
        self.reference, self.draws, self.base, self.guesser = reference, draws, base, guesser
        self.parameters = parameters
        self.generator = torch.Generator().manual_seed(seed)
        self._elements: dict[int, Changed | None] = {}

    def check(self, guess: Guess) -> Found | str:
        """The axes of all inputs and outputs, or why the guess does not hold, as a clause."""
        inputs, untouched = self._inputs(guess)
        outputs = self._outputs(inputs, guess.num_rows)
        return outputs if isinstance(outputs, str) else Found(inputs, outputs, guess.num_rows, untouched)

    def holds(self, layout: BatchLayout) -> bool:
        """Whether known axes hold, by two runs: one changed row, and the rows in another order."""
        axes = list(layout.inputs)
        row = int(torch.randint(layout.size, (1,), generator=self.generator))
        changed = self._run(self._with_row(axes, row, "other"))
        left = [[] if axis is None else [axis] for axis in layout.outputs]
        if changed is None or any(
            known and not _fitting(known, mask, row) for known, mask in zip(left, changed, strict=True)
        ):
            return False
        return self._placed(axes, left, self._order(layout.size)) == left

    def _inputs(self, guess: Guess) -> tuple[Axes, tuple[int, ...]]:
        """The axis of each input, where the guess's own is given."""
        axes: Axes = [None] * len(self.draws.base)
        axes[guess.input] = guess.in_axis
        options = [self._options(guess, number) for number in range(len(self.base))]
        untouched = []
        for index, tensor in enumerate(self.draws.base):
            choices = axes_of(tensor.shape, guess.num_rows)
            if index == guess.input or index in self.parameters or not choices:
                continue
            element = self._element(index)
            if element is not None and not _some_fit(element, options, guess):
                continue  # one element reaches several rows: it is shared
            touched = False
            for axis in choices:
                narrowed, changes = self._narrowed(index, axis, options, guess)
                touched |= changes
                if narrowed is not None and changes:
                    axes[index], options = axis, narrowed
                    break
            if not touched:
                untouched.append(index)
        return axes, tuple(untouched)

    def _options(self, guess: Guess, number: int) -> list[RowAxis]:
        """Axes that an output may have after the guess's own slices; none where it mixes them."""
        output = self.base[number]
        if output is None:
            return []
        if number == guess.output:
            return [guess.out_axis]
        options = axes_of(output.shape, guess.num_rows)
        for found in self.guesser.slices(guess.input, guess.in_axis.dim):
            row = guess.in_axis.row_of(found.index, guess.num_rows)
            options = _fitting(options, found.changed[number], row)
        return options

    def _touched_by(self, guess: Guess) -> frozenset[int]:
        """Outputs that the guess's input changes."""
        return frozenset(
            number
            for found in self.guesser.slices(guess.input, guess.in_axis.dim)
            for number, changed in enumerate(found.changed)
            if changed is None or bool(changed.any())
        )

    def _element(self, index: int) -> Changed | None:
        """What one changed element does; None where it changes nothing or cannot be changed alone."""
        if index not in self._elements:
            base, other = self.draws.base[index], self.draws.others["other"][index]
            at = int(torch.randint(base.numel(), (1,), generator=self.generator))
            inputs = list(self.draws.base)
            inputs[index] = base.flatten().index_copy(0, torch.tensor([at]), other.flatten()[at : at + 1]).view_as(base)
            changed = self._run(inputs)
            moved = changed is not None and any(c is None or bool(c.any()) for c in changed)
            self._elements[index] = changed if moved else None
        return self._elements[index]

    def _narrowed(
        self, index: int, axis: RowAxis, options: list[list[RowAxis]], guess: Guess
    ) -> tuple[list[list[RowAxis]] | None, bool]:
        """Options that are left if `axis` is the input's, None if it is not; and whether anything changed."""
        touched = False
        was_open = [bool(left) for left in options]
        related = self._touched_by(guess)
        for row in (0, guess.num_rows - 1):
            changed = self._changed_by_row(index, axis, row)
            if changed is None:
                return None, touched
            moved = [number for number, c in enumerate(changed) if c is None or bool(c.any())]
            touched |= bool(moved)
            options = [_fitting(left, c, row) for left, c in zip(options, changed, strict=True)]
            reached = [number for number in moved if was_open[number]]
            # an output that mixes this input's rows has no axis; the guess's own must keep its
            if not options[guess.output] or (moved and not any(options[number] for number in reached)):
                return None, touched
            if axis.factor > 1 and moved and not related.intersection(moved):
                return None, touched  # of another computation beside the guess's: only an axis of just so many rows
        return options, touched

    def _changed_by_row(self, index: int, axis: RowAxis, row: int) -> Changed | None:
        """What one changed row of one input does; large values where others are the same or do nothing."""
        changed: Changed | None = None
        for kind in KINDS[:2]:
            values = axis.select(self.draws.others[kind][index], [row])
            inputs = list(self.draws.base)
            inputs[index] = axis.replace(self.draws.base[index], [row], values)
            changed = self._run(inputs)
            if changed is None or any(c is None or bool(c.any()) for c in changed):
                break
        return changed

    def _outputs(self, inputs: Axes, num_rows: int) -> Axes | str:
        """The axis of each output along which the rows are independent, or why none is."""
        left: list[list[RowAxis]] = [[] if output is None else axes_of(output.shape, num_rows) for output in self.base]
        touched = [False] * len(left)
        middle = int(torch.randint(num_rows, (1,), generator=self.generator))
        for row, kinds in ((0, KINDS), (num_rows - 1, KINDS), (middle, KINDS[:1])):
            for kind in kinds:
                changed = self._run(self._with_row(inputs, row, kind))
                if changed is None and kind == "other":
                    return "the graph does not run with another row there"
                for number, mask in enumerate(changed or ()):
                    touched[number] |= mask is None or bool(mask.any())
                    left[number] = _fitting(left[number], mask, row)
                if not any(left):
                    return f"changing row {row} ({kind} values) changes other rows of the outputs"
        left = [axes if reached else [] for axes, reached in zip(left, touched, strict=True)]
        if not any(left):
            return "no output follows the rows"
        order = self._order(num_rows)
        left = self._placed(inputs, left, order)
        if not any(left):
            return "rows in another order give other values: they depend on their position"
        for row in (0, num_rows - 1):
            # what happens only when rows meet (a queue of an expert, a duplicate) does not show among random rows
            left = self._placed(inputs, left, torch.full((num_rows,), row))
        if not any(left):
            return f"copies of row {row} beside it change its values"
        return [axes[0] if axes else None for axes in left]

    def _placed(self, inputs: Axes, left: list[list[RowAxis]], rows: torch.Tensor) -> list[list[RowAxis]]:
        """The axes along which a run of these rows gives these rows of the outputs."""
        try:
            outputs = self.reference.run(
                [x if a is None else a.select(x, rows) for a, x in zip(inputs, self.draws.base, strict=True)]
            )
        except ReferenceRefused:
            return [[] for _ in left]
        return [
            [axis for axis in axes if _holds_rows(axis, output, new, rows)]
            for axes, output, new in zip(left, self.base, outputs, strict=True)
        ]

    def _with_row(self, axes: Axes, row: int, kind: str) -> list[torch.Tensor]:
        return [
            x if axis is None else axis.replace(x, [row], axis.select(other, [row]))
            for axis, x, other in zip(axes, self.draws.base, self.draws.others[kind], strict=True)
        ]

    def _order(self, num_rows: int) -> torch.Tensor:
        """A permutation that leaves no row in its place."""
        order = torch.randperm(num_rows, generator=self.generator)
        moved = torch.empty_like(order)
        moved[order] = order.roll(1)  # along one cycle through all rows
        return moved

    def _run(self, inputs: Sequence[torch.Tensor]) -> Changed | None:
        try:
            return difference(self.base, self.reference.run(inputs))
        except ReferenceRefused:
            return None


def _fitting(options: list[RowAxis], changed: torch.Tensor | None, row: int) -> list[RowAxis]:
    return [] if changed is None else [axis for axis in options if is_within_row(changed, axis, row)]


def _some_fit(element: Changed, options: list[list[RowAxis]], guess: Guess) -> bool:
    """Whether one element's changes lie in one row of the guess's output, and of some output that it reaches."""
    reached = []
    for number, (changed, axes) in enumerate(zip(element, options, strict=True)):
        if changed is None:
            fits = False
        elif not axes or not bool(changed.any()):
            continue
        else:
            fits = any(int(axis.by_row(changed).any(dim=1).sum()) == 1 for axis in axes)
        if number == guess.output and not fits:
            return False
        reached.append(fits)
    return any(reached) or not reached


def _holds_rows(axis: RowAxis, output: torch.Tensor | None, placed: torch.Tensor | None, rows: torch.Tensor) -> bool:
    if output is None or placed is None or output.shape != placed.shape:
        return False
    return bool(same(axis.select(output, rows), placed, rtol=PERMUTED_RTOL).all())
