"""Graphs with a single row: several rows along the axes of size 1 that may be the batch, to see the axis at all.

Which inputs hold the batch and which are broadcast over it cannot be seen from one row. All inputs of leading size 1
are tried first, then fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from data.graph import MalformedGraphError
from eval_harness.batch_invariance.axis_asked import shapes_of
from eval_harness.batch_invariance.axis_reference import Draws, Reference, ReferenceRefused, same
from eval_harness.batch_invariance.axis_resize import RESIZED_RTOL, Reading, sources, with_rows
from eval_harness.batch_invariance.row_axis import RowAxis

GROWN_ROWS = 5
"""Rows of a grown graph: no size that heads, channels or kernels often have."""
MAX_GROUPS = 8
_READINGS: tuple[Reading, ...] = ("first", "kept", "leading", "sizes")
"""A leading 1 is the batch: kept, view(1, -1, 8) folds the rows into the next dimension, and runs as well."""


@dataclass(frozen=True)
class Grown:
    """A graph that runs with GROWN_ROWS rows along some axes of size 1."""

    reference: Reference
    draws: Draws
    base: list[torch.Tensor | None]
    inputs: tuple[RowAxis | None, ...]


def grown(
    reference: Reference,
    draws: Draws,
    base: list[torch.Tensor | None],
    parameters: frozenset[int],
    dim: int,
    seed: int,
    sparse: frozenset[int],
) -> Iterator[Grown]:
    """Grown graphs whose every row, given the only row there is, has its outputs; the most inputs first."""
    for group in _groups(draws.base, parameters, dim)[:MAX_GROUPS]:
        axes = tuple(RowAxis(dim) if index in group else None for index in range(len(draws.base)))
        for _, source in sources(reference.graph, axes, (), 1, GROWN_ROWS, _READINGS):
            try:
                graph = with_rows(reference.graph, axes, GROWN_ROWS, source)
                ready = reference if source == reference.graph.model_source else Reference.load(graph)
                ready = Reference(graph, ready.ir, ready.function, reference.written)
                repeated = [
                    x if axis is None else axis.select(x, [0] * GROWN_ROWS)
                    for axis, x in zip(axes, draws.base, strict=True)
                ]
                if not _repeats(base, ready.run(repeated)):
                    continue
                grown_draws = Draws.of(ready, graph, seed, sparse=sparse)
                yield Grown(ready, grown_draws, ready.run(grown_draws.base), axes)
                break
            except (ReferenceRefused, MalformedGraphError):
                continue


def _groups(base: list[torch.Tensor], parameters: frozenset[int], dim: int) -> list[frozenset[int]]:
    """Sets of inputs that may hold the batch along `dim`, the largest first."""
    ones = [index for index, x in enumerate(base) if index not in parameters and x.dim() > dim and x.shape[dim] == 1]
    most = max((base[index].dim() for index in ones), default=0)
    groups = [frozenset(ones)]
    groups += [frozenset(index for index in ones if base[index].dim() >= rank) for rank in range(2, most + 1)]
    groups += [frozenset([index]) for index in sorted(ones, key=lambda index: -base[index].numel())]
    return [group for group in dict.fromkeys(groups) if group]


def _repeats(base: list[torch.Tensor | None], outputs: list[torch.Tensor | None]) -> bool:
    """Whether some output is the old one several times over along one dimension, and the others are so or the same."""
    grew = False
    for old, new in zip(base, outputs, strict=True):
        if old is None or new is None or old.dim() != new.dim():
            if old is None and new is None:
                continue
            return False
        differing = [dim for dim in range(old.dim()) if old.shape[dim] != new.shape[dim]]
        if len(differing) > 1:
            continue  # rows against rows: this output mixes them
        if not differing:
            continue
        dim = differing[0]
        if new.shape[dim] != old.shape[dim] * GROWN_ROWS:
            return False
        for order in ("outer", "inner"):
            axis = RowAxis(dim, old.shape[dim], order)  # type: ignore[arg-type]
            if bool(same(axis.select(new, [0]), old, rtol=RESIZED_RTOL).all()):
                grew = True
                break
    return grew


def ambiguous_inputs(candidate: Grown) -> tuple[int, ...]:
    """Inputs that may keep one row while the others grow, the small ones first, until the outputs shrink."""
    inputs = list(candidate.draws.base)
    batched = [(index, axis) for index, axis in enumerate(candidate.inputs) if axis is not None]
    found: list[int] = []
    for index, axis in sorted(batched, key=lambda pair: inputs[pair[0]].numel()):
        if len(found) == len(batched) - 1:
            break
        fewer = [axis.select(x, [0]) if at == index else x for at, x in enumerate(inputs)]
        try:
            outputs = candidate.reference.run(fewer)
        except ReferenceRefused:
            continue
        if shapes_of(outputs) == shapes_of(candidate.base):
            found.append(index)
            inputs = fewer
    return tuple(sorted(found))
