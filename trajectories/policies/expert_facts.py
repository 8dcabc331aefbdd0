"""Facts of a region over all graphs of its group: shapes, dtypes, literals, and where eager rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trajectories.policies.expert_expr import Leaf, Region
from trajectories.policies.expert_ir import CASTS, FACTORIES, FLOATS, Node, OutsideFamiliesError, shown
from trajectories.policies.expert_shapes import Shapes

SHIFT = {"float32": 0, "float16": 13, "bfloat16": 16}
"""Bits of a float32 mantissa that the dtype lacks."""


class RegionFacts:
    """What the graphs of a region have in common, and how the wrapper names what they do not."""

    def __init__(self, region: Region) -> None:
        self.region, self.programs = region, region.programs
        self.leaves: list[Leaf] = []
        self.roundings: dict[str, str] = {}
        """Name in the kernel (s, s1, ...) -> the wrapper's expression."""
        self._main = region.programs[0]
        self._inputs = {self._main.variables[key]: shown(key) for key in region.inputs}

    def node(self, index: int) -> Node:
        return self._main.nodes[index]

    def shapes(self, index: int) -> Shapes:
        return tuple(program.nodes[index].shape or () for program in self.programs)

    def dtypes(self, index: int) -> tuple[str, ...]:
        return tuple(str(program.nodes[index].dtype) for program in self.programs)

    def literal(self, values: Sequence[Any], *, text: Callable[[Any], str] = repr) -> str:
        """The literal as text, or the name of a wrapper argument where the programs differ in it."""
        if all(value == values[0] and type(value) is type(values[0]) for value in values):
            return text(values[0])
        for name, known in self.region.literals.items():
            if known == tuple(values):
                return name
        name = f"k{len(self.region.literals)}"
        self.region.literals[name] = tuple(values)
        return name

    def dtype_text(self, dtypes: tuple[str, ...]) -> str:
        """The wrapper's expression for a dtype: fixed, or that of an input that has it in every graph."""
        for index, name in self._inputs.items():
            if self.dtypes(index) != dtypes:
                continue
            if len(set(dtypes)) > 1 or dtypes[0] != "float32" or self._follows_input([index]):
                return f"{name}.dtype"
        if len(set(dtypes)) == 1:
            return f"torch.{dtypes[0]}"
        raise OutsideFamiliesError(f"a value has the dtypes {dtypes}, which no input of the region has")

    def rounding(self, dtypes: tuple[str, ...]) -> str | None:
        """Name of the kernel's rounding parameter; None where no rounding is needed."""
        if any(dtype not in SHIFT for dtype in dtypes):
            if any(dtype in FLOATS for dtype in dtypes):
                raise OutsideFamiliesError("float64 is outside my families")
            return None
        inputs = [index for index in self._inputs if self.dtypes(index) == dtypes]
        if set(dtypes) == {"float32"} and not self._follows_input(inputs):
            return None
        text = (
            self.dtype_text(dtypes)
            if len(set(dtypes)) > 1 or set(dtypes) != {"float32"}
            else (f"{self._inputs[inputs[0]]}.dtype")
        )
        for name, known in self.roundings.items():
            if known == text:
                return name
        name = f"s{len(self.roundings) or ''}"
        self.roundings[name] = text
        return name

    def _follows_input(self, inputs: list[int]) -> bool:
        """Whether float32 here is the inputs' own dtype rather than what a cast made of it (all graphs float32)."""
        casts = any(
            node.op in CASTS | FACTORIES and node.is_float and node.statement in self.region.indices
            for node in self._main.nodes
        )
        floats = [index for index in self._inputs if self.node(index).is_float]
        return bool(inputs) and not casts and all(set(self.dtypes(index)) == {"float32"} for index in floats)

    def dtype_checks(self) -> list[tuple[str, str]]:
        """Pairs of dtypes, as text of the wrapper, that the kernel takes for equal."""
        pairs: list[tuple[str, str]] = []
        first: dict[tuple[str, ...], str] = {}
        for leaf in self.leaves:
            dtypes = self.dtypes(leaf.node)
            if leaf.expr.is_float and first.setdefault(dtypes, leaf.name) != leaf.name:
                pairs.append((f"{leaf.name}.dtype", f"{first[dtypes]}.dtype"))
        for dtypes, name in first.items():
            is_fixed = len(first) > 1 or not self._follows_input([self.leaves[0].node])
            if set(dtypes) == {"float32"} and is_fixed:
                pairs.append((f"{name}.dtype", "torch.float32"))
        return pairs
