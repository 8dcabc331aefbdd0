"""How the sizes that stand in a statement follow when sizes of its operands change. Numbers only: no torch, no text.

An axis is a pair (size before, size after). Used by resizing.py, which runs each statement at both sizes and so knows
the axes of every operand.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

Axes = Sequence[tuple[int, int]]

MIN_LITERAL = 7
"""A smaller integer that stands alone is more often an axis, a stride or a count than the size that is changed."""


class NotFollowedError(ValueError):
    """A size that may have to follow, and nothing tells how."""


class SeenSizes:
    """Every axis of every value so far, for sizes that no operand explains: torch.zeros(2, 64), x[:, :64]."""

    def __init__(self, changes: Axes = ()) -> None:
        """changes: the sizes that are changed on purpose."""
        self.changes = tuple(changes)
        self._after: dict[int, set[int]] = defaultdict(set)

    def note(self, axes: Axes) -> None:
        for before, after in axes:
            self._after[before].add(after)

    def follow(self, size: int) -> int:
        """The size after. Raises NotFollowedError if values differ over it and it is large enough to matter."""
        after = self._after.get(size) or {size}
        if len(after) == 1:
            return next(iter(after))
        if size < MIN_LITERAL:
            return size
        shown = " or ".join(map(str, sorted(after)))
        raise NotFollowedError(f"{size} may stay or follow ({shown}); change another size")


def follow_view(axes: Axes, sizes: Sequence[int], changes: Axes = ()) -> list[int]:
    """The shape of a view after: each run of sizes takes its new elements from the run of axes that it is made of.

    axes: of the operand; sizes: those of the view before, none of them -1; changes: the sizes changed on purpose, which
    a run is tried with first. Raises NotFollowedError.
    """
    after: list[int] = []
    axis = place = 0
    while axis < len(axes) or place < len(sizes):
        first_axis, first_place = axis, place
        left = right = 1
        # one of each at least, then more of the side that holds fewer elements
        if axis < len(axes):
            left, axis = axes[axis][0], axis + 1
        if place < len(sizes):
            right, place = sizes[place], place + 1
        while left != right:
            if left < right and axis < len(axes):
                left, axis = left * axes[axis][0], axis + 1
            elif left > right and place < len(sizes):
                right, place = right * sizes[place], place + 1
            else:
                raise NotFollowedError(f"{list(sizes)} is no view of {[before for before, _ in axes]}")
        after += _follow_run(axes[first_axis:axis], sizes[first_place:place], changes)
    return after


def _follow_run(axes: Axes, sizes: Sequence[int], changes: Axes) -> list[int]:
    """The sizes after of one run of a view: a size takes what the others leave, the likeliest first."""
    wanted = math.prod(after for _, after in axes)
    if all(before == after for before, after in axes):
        return list(sizes)
    followed = list(sizes)
    changed = [pair for pair in axes if pair[0] != pair[1]]
    for place, size in enumerate(sizes):
        pair = next((pair for pair in changed if pair[0] == size), None)
        if pair is not None:
            followed[place] = pair[1]
            changed.remove(pair)
    # a batch that was 1 and merged with 4 heads is split into 1, 4 again: the 1 follows, though the axis was 4
    purposeful = [
        [*sizes[:place], after, *sizes[place + 1 :]]
        for before, after in changes
        for place, size in enumerate(sizes)
        if size == before
    ]
    divided = [
        [*sizes[:place], wanted // others, *sizes[place + 1 :]]
        for place in range(len(sizes))
        if (others := math.prod((*sizes[:place], *sizes[place + 1 :])))
    ]
    for found in (*purposeful, followed, *divided):
        if math.prod(found) == wanted:
            return found
    raise NotFollowedError(f"no size of {list(sizes)} can take {wanted} elements")


def follow_expand(axes: Axes, sizes: Sequence[int], seen: SeenSizes) -> list[int]:
    """The shape of an expansion after; -1 keeps an axis. Raises NotFollowedError."""
    padding = len(sizes) - len(axes)
    after = []
    for place, size in enumerate(sizes):
        axis = axes[place - padding] if place >= padding else None
        if size == -1:
            after.append(size)
        elif axis is not None and axis[0] == size:
            after.append(axis[1])
        else:
            after.append(seen.follow(size))
    return after


def axes_of(before: Iterable[int], after: Iterable[int]) -> list[tuple[int, int]]:
    """Raises NotFollowedError if the number of axes differs."""
    old, new = tuple(before), tuple(after)
    if len(old) != len(new):
        raise NotFollowedError(f"a value has {len(old)} axes before and {len(new)} after")
    return list(zip(old, new, strict=True))
