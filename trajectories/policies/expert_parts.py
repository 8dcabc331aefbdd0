"""How a Triton kernel is divided: which outputs one program computes together, and over which axes it reduces.

A part without reductions walks its elements in their order in memory (`j`). One with reductions holds a tile: `row`
over the axes that are kept, `col` over those that are reduced, whichever of them lies closer in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trajectories.policies.expert_expr import Expr, Output, walk
from trajectories.policies.expert_ir import OutsideFamiliesError
from trajectories.policies.expert_shapes import Shapes

MAX_TILE = 16_384
"""Elements along the reduced axes that a program holds in registers; longer ones are read in a loop."""
MAX_COLUMNS_TILE = 1024
"""The same where neighbours in memory belong to different results: the tile needs room for both."""
MAX_NESTED = 128
"""Elements of a reduction that each element of another one's tile may go through on its own."""
FEW = 4
"""Elements of a reduction for which a tile is not worth it."""
MAX_PARTS = 8


@dataclass
class Part:
    """Outputs that one program computes together."""

    space: Shapes
    """Shapes of the index space, one a graph."""
    axes: tuple[int, ...] = ()
    """Reduced axes; none: elementwise."""
    outputs: list[Output] = field(default_factory=list)
    reductions: list[Expr] = field(default_factory=list)
    """Those over `axes` of `space`, operands first."""

    @property
    def rank(self) -> int:
        return len(self.space[0])

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(self.rank) if axis not in self.axes)

    @property
    def is_rows(self) -> bool:
        """Whether the reduced axes are the last ones, so that a row lies in one piece."""
        return self.axes == tuple(range(self.rank - len(self.axes), self.rank))

    @property
    def longest(self) -> int:
        return max(math.prod(shape[axis] for axis in self.axes) for shape in self.space)

    @property
    def loops(self) -> bool:
        """Whether the reduced axes are too long for one tile."""
        return bool(self.axes) and self.longest > (MAX_TILE if self.is_rows else MAX_COLUMNS_TILE)


def divide(outputs: Sequence[Output]) -> list[Part]:
    """Parts of a kernel. Raises OutsideFamiliesError where an output mixes reductions that no tile can hold."""
    parts: list[Part] = []
    plain: list[Output] = []
    for output in outputs:
        reductions = [expr for expr in walk(output.expr) if expr.kind in ("reduce", "scan")]
        if not reductions:
            plain.append(output)
            continue
        main = max(reductions, key=_size)
        space, axes, is_scan = main.args[0].shapes, main.data[0], main.kind == "scan"
        part = next((part for part in parts if part.space == space and part.axes == axes), None) or Part(space, axes)
        if not is_scan and (_size(main) <= FEW or not _fits(part, output)):
            if _size(main) > MAX_NESTED:
                raise OutsideFamiliesError("a reduced value is read at another place than its own")
            plain.append(output)  # each element goes through the few operands by itself
            continue
        if not _fits(part, output):
            raise OutsideFamiliesError("a running sum is read at another place than its own")
        if not any(part is known for known in parts):
            parts.append(part)
        own = [expr for expr in reductions if expr.args[0].shapes == space and expr.data[0] == axes]
        part.outputs.append(output)
        part.reductions += [expr for expr in own if not any(expr is known for known in part.reductions)]
    for output in plain:
        home = next((part for part in parts if part.space == output.expr.shapes and not output.is_permuted), None)
        if home is None:
            home = Part(output.expr.shapes)
            parts.append(home)
        home.outputs.append(output)
    if len(parts) > MAX_PARTS:
        raise OutsideFamiliesError(f"more than {MAX_PARTS} results of different shapes")
    return parts


def _size(expr: Expr) -> int:
    """Elements that one result of a reduction goes through, at most."""
    return max(math.prod(shape[axis] for axis in expr.data[0]) for shape in expr.args[0].shapes)


def _fits(part: Part, output: Output) -> bool:
    """Whether the output has one element for each of the tile, or for each row of it."""
    shapes = output.expr.shapes
    if shapes == part.space:
        return True
    for shape, whole in zip(shapes, part.space, strict=True):
        kept = [size for axis, size in enumerate(whole) if axis not in part.axes]
        if math.prod(shape) != math.prod(kept):
            return False
        if shape not in (tuple(kept), tuple(1 if a in part.axes else d for a, d in enumerate(whole))):
            return False
    return not output.is_permuted
