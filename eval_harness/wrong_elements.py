"""WrongElements: which elements of an output are wrong, how far and where, as one line for who wrote the candidate.

It says numbers and places of one worst element only: enough to mend a kernel, too little to write down an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from eval_harness.scores import LAST_COMPARED_LEVEL
from eval_harness.verdict import STRICT_LEVEL

MAX_PLACED = 1 << 20
"""Wrong elements of a chunk whose places are looked at; with more, the region is all of the chunk."""

MAX_RELATIVE = 100.0
"""Relative errors above it say nothing: the expected value is near 0."""


class WrongElements:
    """Those beyond the strict tolerance, gathered over chunks of a flat output."""

    def __init__(self, shape: Sequence[int], dtype: str) -> None:
        """dtype: with or without "torch."."""
        self.shape, self.dtype = tuple(shape), dtype.removeprefix("torch.")
        self.count = self.num_not_finite = 0
        self._ratio, self._index = -1.0, -1
        self._values: tuple[object, object] = (None, None)
        self._first: list[int] | None = None
        self._last: list[int] = []

    def add(
        self, ratio: torch.Tensor, beyond: torch.Tensor, offset: int, ours: torch.Tensor, expected: torch.Tensor
    ) -> None:
        """One chunk, flat, from `offset` on. ratio: difference over what is allowed; beyond: mask of wrong elements."""
        self.count += int(beyond.sum())
        if ours.dtype.is_floating_point or ours.dtype.is_complex:
            self.num_not_finite += int((beyond & ~torch.isfinite(ours) & torch.isfinite(expected)).sum())
        ratio = torch.where(beyond, ratio, -1.0)  # elsewhere it may be 0 / 0
        index = int(ratio.argmax())
        if float(ratio[index]) > self._ratio:
            self._ratio, self._index = float(ratio[index]), offset + index
            self._values = (ours[index].item(), expected[index].item())
        self._widen(beyond.nonzero().reshape(-1), offset)

    def message(self, level: int | None, largest: float, tolerances: tuple[float, float]) -> str:
        """What to say; "" if nothing is wrong.

        level: first_correct_t of the whole output. largest: the largest finite difference. tolerances: (atol, rtol) at
        that level; (0, 0) for a dtype that must be equal.
        """
        if self.count == 0:
            return ""
        total = math.prod(self.shape)
        exact = level is None and tolerances == (0.0, 0.0)
        rule = (
            f"differ ({self.dtype} must be equal)"
            if exact
            else f"are beyond the {self.dtype} tolerance at t = {STRICT_LEVEL}"
        )
        ours, expected = (_number(value) for value in self._values)
        position = _text(_unravel(self._index, self.shape)) if self.shape else "()"
        parts = [
            f"{self.count} of {total} elements {rule}; worst at {position}: {ours}, expected {expected}{self._off()}"
        ]
        if region := self._region():
            parts.append(f"all of them in {region}")
        if self.num_not_finite:
            parts.append(f"{self.num_not_finite} of them NaN or infinite where eager is finite")
        # the worst by what is allowed there is not always the largest
        difference = self._difference()
        if difference is None or largest > 1.01 * difference:
            parts.append(f"largest difference {_number(largest)}")
        if not exact and not self.num_not_finite:
            atol, rtol = tolerances
            parts.append(
                f"no level up to t = {LAST_COMPARED_LEVEL} allows it"
                if level is None
                else f"it would do at t = {level} (atol {atol:.1e}, rtol {rtol:.1e})"
            )
        return "; ".join(parts)

    def _difference(self) -> float | None:
        """Of the worst element; None if it is not finite."""
        ours, expected = self._values
        if not isinstance(ours, int | float | complex) or not isinstance(expected, int | float | complex):
            return None
        difference = abs(ours - expected)
        return difference if math.isfinite(difference) else None

    def _off(self) -> str:
        """The absolute and relative error of the worst element."""
        difference, expected = self._difference(), self._values[1]
        if difference is None or isinstance(expected, bool) or not isinstance(expected, int | float | complex):
            return ""
        relative = difference / abs(expected) if expected else math.inf
        return f" (off by {_number(difference)}" + (f", {relative:.2%})" if relative < MAX_RELATIVE else ")")

    def _widen(self, wrong: torch.Tensor, offset: int) -> None:
        """Take the places of wrong elements, indices into a chunk, into the bounding box."""
        if not len(self.shape) or not len(wrong):
            return
        if len(wrong) > MAX_PLACED:
            self._first, self._last = [0] * len(self.shape), [size - 1 for size in self.shape]
            return
        places = torch.unravel_index(wrong + offset, self.shape)
        first, last = [int(axis.min()) for axis in places], [int(axis.max()) for axis in places]
        if self._first is None:
            self._first, self._last = first, last
        else:
            self._first = list(map(min, self._first, first))
            self._last = list(map(max, self._last, last))

    def _region(self) -> str:
        """The smallest box that holds every wrong element, if it is at most half of the output: a mask, a tail."""
        if self._first is None or self.count == 1:
            return ""
        box = list(zip(self._first, self._last, self.shape, strict=True))
        if 2 * math.prod(last - first + 1 for first, last, _ in box) > math.prod(self.shape):
            return ""
        ranges = [
            ":"
            if first == 0 and last == size - 1
            else str(first)
            if first == last
            else f"{first}:{'' if last == size - 1 else last + 1}"
            for first, last, size in box
        ]
        return f"[{', '.join(ranges)}]"


def _unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    position = []
    for size in reversed(shape):
        position.append(index % size)
        index //= size
    return tuple(reversed(position))


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float | complex) else str(value)


def _text(values: Sequence[int]) -> str:
    return "(" + ", ".join(str(value) for value in values) + ")"
