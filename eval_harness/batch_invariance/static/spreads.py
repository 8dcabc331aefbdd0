"""f(*x.shape): the sizes that a spread shape gives to the parameters it meets."""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import SHAPE, Val

SPREAD = "*"
"""Val.name of a shape that is spread into a tuple or a call, its rank not known there."""


def spread_shape(shape: Val) -> list[Val]:
    """The sizes of *shape where the rank is known, else the shape itself, marked."""
    tensor, start, stop = shape.data
    if tensor.dims is not None:
        return list(tensor.dims[start:stop])
    marked = shape.copy()
    marked.name = SPREAD
    return [marked]


def fill_parameters(
    run: Run, frame: Frame, args: list[Val], names: Sequence[str], taken: frozenset[str], line: int
) -> list[Val]:
    """Arguments with a marked shape replaced by sizes, one for every parameter that nothing else fills."""
    place = next((at for at, value in enumerate(args) if value.kind == SHAPE and value.name == SPREAD), None)
    if place is None or not names:
        return args
    tensor, start, stop = args[place].data
    behind = args[place + 1 :]
    open_names = [name for name in names[place:] if name not in taken]
    filled: list[str | None] = list(open_names[: max(len(open_names) - len(behind), 0)])
    if isinstance(stop, int) and stop >= 0:
        filled = filled[: max(stop - start, 0)]
    return [*args[:place], *sources.sizes_named(run, frame, tensor, filled, line, start), *behind]
