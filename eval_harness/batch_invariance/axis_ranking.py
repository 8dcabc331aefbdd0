"""Which of several axes that hold is the batch: what speaks against each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from eval_harness.batch_invariance.axis_candidates import Guess
from eval_harness.batch_invariance.row_axis import BatchLayout


@dataclass(frozen=True)
class Held:
    """An axis that holds, and what speaks against it."""

    layout: BatchLayout
    guess: Guess
    left_out: int

    @property
    def against(self) -> tuple[bool, bool, int]:
        inner = any(axis is not None and axis.order == "inner" for axis in self.layout.inputs)
        return (not self.layout.resizable, inner, self.left_out)

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """The least is the best; last how far from the front the batch lies, over all tensors."""
        axes = (*self.layout.inputs, *self.layout.outputs)
        return (*self.against, sum(axis.dim for axis in axes if axis is not None))

    @property
    def is_leading(self) -> bool:
        return self.guess.total == 0

    def covers(self, other: Guess) -> bool:
        """Whether another guess is of the same dimensions, or of an input that already has this axis."""
        dims = (other.input, other.in_axis.dim, other.output, other.out_axis.dim)
        own = (self.guess.input, self.guess.in_axis.dim, self.guess.output, self.guess.out_axis.dim)
        return dims == own or self.layout.inputs[other.input] == other.in_axis

    def is_final(self, following: Guess) -> bool:
        """Whether nothing speaks against it and what follows lies deeper."""
        return self.against == (False, False, 0) and (self.is_leading or following.total > self.guess.total)


def left_out(layout: BatchLayout, tensors: Sequence[tuple[int, torch.Tensor]]) -> int:
    """How many inputs of the most dimensions are shared and not broadcast. tensors: (index, input) of those that count.

    The queries of an attention are independent of one another with keys and values shared; its batch takes all three.
    """
    dims = {axis.dim for axis in layout.inputs if axis is not None}
    most = max(x.dim() for _, x in tensors)
    shared = [x for index, x in tensors if layout.inputs[index] is None and x.dim() == most]
    return sum(all(x.shape[dim] != 1 for dim in dims if dim < x.dim()) for x in shared)
