"""Records of lowering: scalar expressions, the arrays that they read, the results, and the region they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectories.policies.expert_ir import Program
from trajectories.policies.expert_shapes import Shapes


@dataclass(eq=False)
class Expr:
    """One scalar expression.

    kind: leaf, literal, iota, pointwise, reduce, scan, window, remap, cat, pad, gather.
    """

    kind: str
    shapes: Shapes
    args: tuple[Expr, ...] = ()
    fn: str = ""
    rounding: str | None = None
    data: Any = None
    is_float: bool = True

    @property
    def rank(self) -> int:
        return len(self.shapes[0])

    @property
    def level(self) -> int:
        """Reductions on the way from the inputs: a value of level k is known once k loops have run."""
        return self._level

    def __post_init__(self) -> None:
        self._level = max((arg.level for arg in self.args), default=0) + (self.kind in ("reduce", "scan"))


@dataclass
class Leaf:
    """One array of the kernel: an input, possibly behind views that the wrapper takes with torch."""

    name: str
    text: str
    """The wrapper's expression."""
    expr: Expr
    node: int
    """The program node that it is."""


@dataclass
class Output:
    """One result of the region."""

    name: str
    expr: Expr
    node: int
    """The program node whose value the kernel writes."""
    suffix: str
    """Views that the wrapper takes of it, as text."""
    dtype: str
    """Expression of its dtype: "in_0.dtype" or "torch.float32"."""
    merged: Shapes | None = None
    """The graph's shapes, where the kernel writes with an axis split in two."""
    order: tuple[int, ...] = ()
    """Its axes from the slowest to the fastest in memory."""
    chain: tuple[int, ...] = ()
    """Nodes of views that leave it contiguous: it is allocated in the shape after them."""

    @property
    def is_permuted(self) -> bool:
        return self.order != tuple(sorted(self.order))

    @property
    def inverse(self) -> tuple[int, ...]:
        """The permutation that takes the memory's order of axes to the graph's."""
        return tuple(self.order.index(axis) for axis in range(len(self.order)))


@dataclass
class Region:
    """Statements of every program of a group, to be replaced by one call."""

    programs: Sequence[Program]
    indices: tuple[int, ...]
    """Which statements, in order."""
    inputs: list[str]
    """Keys of the values that the statements read from outside."""
    outputs: list[str]
    """Keys of the values that are needed outside."""
    literals: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Names of the wrapper's literal arguments -> value for each program."""

    def statements(self, program: Program) -> list[str]:
        return [program.statements[index].text for index in self.indices]


def number_text(value: Any) -> str:
    if isinstance(value, float) and (math.isinf(value) or math.isnan(value)):
        return f'float("{value}")'
    return repr(value)


def walk(expr: Expr) -> list[Expr]:
    """The expression and everything below it, each once, operands first."""
    seen: dict[int, Expr] = {}

    def visit(item: Expr) -> None:
        if id(item) not in seen:
            for arg in item.args:
                visit(arg)
            seen[id(item)] = item

    visit(expr)
    return list(seen.values())
