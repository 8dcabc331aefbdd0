"""Writes one part of a region as Triton: index variables, loads, arithmetic and stores (expert_parts.py says which).

Values are float32 in registers and are rounded to the tensors' dtype T where eager rounds. Sizes that index arithmetic
needs are compile-time constants, so that divisions by them cost little; how many rows there are is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trajectories.policies.expert_dims import structural_dim
from trajectories.policies.expert_emit import Emitter, Slip, strip_parentheses
from trajectories.policies.expert_expr import Expr, Output
from trajectories.policies.expert_formulas import TRITON
from trajectories.policies.expert_index import Index, sizes
from trajectories.policies.expert_ir import OutsideFamiliesError
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_parts import Part
from trajectories.policies.expert_shapes import Shapes

_WORD = re.compile(r"[A-Za-z_]\w*")
_ROUNDED = re.compile(r"\.to\(T\d*\)\.to\(tl\.float32\)$|\.to\(tl\.b?float16\)\.to\(tl\.float32\)$")
NO_DEPENDENCE: frozenset[str] = frozenset()


@dataclass
class Parameters:
    """Arguments of the kernel besides its arrays: name -> the wrapper's expression."""

    sizes: dict[str, str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    """Sizes that the first launch has found equal to others."""

    def size(self, text: str) -> str:
        """The constant that stands for a size."""
        while text in self.same:
            text = self.same[text]
        if text.isdigit():
            return text
        known = next((name for name, other in self.sizes.items() if other == text), None)
        if known is None:
            known = f"N{len(self.sizes)}"
            self.sizes[known] = text
        return known


@dataclass
class Flat:
    """Several axes walked through by one variable."""

    name: str
    axes: tuple[int, ...]
    dependence: str
    """"row" or "col": which side of the tile it varies along ("row" in parts without a tile)."""


class TritonEmitter(Emitter):
    """Text of one part. Subclasses say how tiles are walked through (expert_tiles.py)."""

    templates = TRITON

    def __init__(self, lowering: Lowering, part: Part, parameters: Parameters, slip: Slip | None = None) -> None:
        super().__init__(lowering, slip, [output.expr for output in part.outputs])
        self.part, self.parameters = part, parameters
        self.lines: list[str] = []
        """The part's statements so far."""
        self.loop: list[str] | None = None
        """Statements of the loop over the reduced axes that is being written."""
        self.flats: list[Flat] = []
        self.variables: list[str] = []
        """Index variable of each axis of the space."""
        self.definitions: dict[str, str] = {}
        """Index variable -> what it is set to, written once something reads it."""
        self.dependences: dict[str, frozenset[str]] = {}
        self.conditions: list[str] = []
        self.results: dict[int, str] = {}
        self.types: dict[str, str] = {}
        self.strided = {leaf.name for leaf in lowering.leaves if lowering.is_strided(leaf.node)}
        """Arrays that are read by their own strides."""
        self.tile = ""
        self.known: dict[Shapes, list[Expr]] = {}
        """Expressions by their shapes: they tell how a size comes about."""
        for expr in self.all_exprs([output.expr for output in lowering.outputs]):
            self.known.setdefault(expr.shapes, []).append(expr)

    @property
    def index(self) -> Index:
        return tuple(self.variables)

    # ---- index variables

    def walk_axes(self, flat: Flat) -> None:
        """Set index variables for the axes of a flat variable."""
        self.flats.append(flat)
        self.dependences[flat.name] = frozenset({flat.dependence})
        for position, axis in enumerate(flat.axes):
            if len(flat.axes) == 1:
                self.variables[axis] = flat.name
                continue
            name = f"i{axis}"
            inner = self.product_text(self.part.space, flat.axes[position + 1 :])
            value = f"{flat.name} // {inner}" if inner else flat.name
            if position:
                value += f" % {self.dim(sizes(self.part.space, axis), self.part.space, axis)}"
            self.variables[axis], self.definitions[name] = name, value
            self.dependences[name] = frozenset({flat.dependence})

    def product_text(self, space: Shapes, axes: Iterable[int]) -> str:
        """A product of sizes as the kernel writes it; empty for no axes."""
        names = [self.dim(sizes(space, axis), space, axis) for axis in axes]
        names = [name for name in names if name != "1"] or names[:1]
        return names[0] if len(names) == 1 else f"({' * '.join(names)})" if names else ""

    def dim(self, wanted: tuple[int, ...], space: Shapes = (), space_axis: int = -1) -> str:
        """A size: 1 and what a literal of the graph sets are written out, others come from an input's shape."""
        # first the very expression that the shapes are of: others may have them by chance
        alike = sorted(self.known.get(space, ()), key=lambda expr: expr.shapes is not space)
        for expr in alike:
            text = structural_dim(expr, space_axis)
            if text is not None:
                return text if text.isdigit() else self.parameters.size(text)
        if set(wanted) == {1}:
            return "1"
        axes = [(leaf, axis) for leaf in self.lowering.leaves for axis in range(leaf.expr.rank)]
        axes = [(leaf, axis) for leaf, axis in axes if sizes(leaf.expr.shapes, axis) == wanted]
        if axes:
            from_end = space_axis - len(space[0]) if space else 0
            leaf, axis = next((item for item in axes if item[1] - item[0].expr.rank == from_end), axes[0])
            return self.parameters.size(f"{leaf.name}.shape[{axis}]")
        for expr in (expr for exprs in self.known.values() for expr in exprs):
            for axis in range(expr.rank):
                if sizes(expr.shapes, axis) == wanted and (found := structural_dim(expr, axis)) is not None:
                    return self.parameters.size(found)
        text = self.lowering.literal(wanted)
        return text if text.isdigit() else self.parameters.size(text)

    def offset(self, shapes: Shapes, index: Index) -> str:
        """Where an element lies in a contiguous array of these shapes."""
        text, at = "", 0
        while at < len(index):
            if set(sizes(shapes, at)) == {1} and index[at] == "0":
                at += 1
                continue
            term, end = self._run(shapes, index, at)
            step = self.product_text(shapes, range(at, end)) if text else ""
            if text and step != "1":
                text = f"{_grouped(text)} * {step}"
            text = term if not text else text if term == "0" else f"{text} + {term}"
            at = end
        return text

    def _run(self, shapes: Shapes, index: Index, at: int) -> tuple[str, int]:
        """The longest run of axes from `at` on that one flat variable walks through, as text, and where it ends."""
        for flat in self.flats:
            names = [self.variables[axis] for axis in flat.axes]
            if index[at] not in names or len(names) == 1:
                continue
            first = last = names.index(index[at])
            end = at + 1
            while end < len(index) and last + 1 < len(names) and index[end] == names[last + 1]:
                axis = flat.axes[last + 1]
                walked = self.dim(sizes(self.part.space, axis), self.part.space, axis)
                if self.dim(sizes(shapes, end), shapes, end) != walked:
                    break
                end, last = end + 1, last + 1
            if last == first:
                break
            inner = self.product_text(self.part.space, flat.axes[last + 1 :])
            text = f"{flat.name} // {inner}" if inner else flat.name
            if first:
                text += f" % {self.product_text(self.part.space, flat.axes[first : last + 1])}"
            return (text if text == flat.name else self.name(text)), end
        text = strip_parentheses(index[at])
        return (text if _WORD.fullmatch(text) or text.isdigit() else f"({text})"), at + 1

    def _strided(self, name: str, index: Index) -> str:
        parts = []
        for axis, text in enumerate(index):
            if text != "0":
                step = self.parameters.size(f"{name}.stride({axis})")
                parts.append(f"{_grouped(strip_parentheses(text))} * {step}")
        return " + ".join(parts)

    # ---- lines

    def depends_on(self, text: str) -> frozenset[str]:
        """Which sides of the tile a text varies along."""
        return NO_DEPENDENCE.union(*(self.dependences.get(name, NO_DEPENDENCE) for name in _WORD.findall(text)))

    def depth(self, text: str) -> int:
        return int(self.part.loops and "col" in self.depends_on(text))

    def assign(self, name: str, text: str, depth: int) -> None:
        self.dependences[name] = self.depends_on(text)
        self.write([f"{name} = {text}"], depth)

    def write(self, lines: Sequence[str], depth: int) -> None:
        target = self.loop if depth and self.loop is not None else self.lines
        for line in lines:
            self._define(line, target)
        target += lines

    def _define(self, line: str, target: list[str]) -> None:
        """Index variables that a line reads are set before it."""
        for name in _WORD.findall(line):
            text = self.definitions.get(name)
            if text is None:
                continue
            home = self.loop if self.loop is not None and self.depth(name) else self.lines
            written = f"{name} = {text}"
            if not any(item.strip() == written for item in home):
                self._define(text, home)
                home.append(written)

    def mask(self, text: str) -> str:
        """The mask of a load or store at an offset."""
        sides = self.depends_on(text)
        names = {frozenset({"row"}): "m_row", frozenset({"col"}): "m_col"} if self.part.axes else {}
        own = [names.get(sides, "m")] if sides else []
        return " & ".join([*own, *self.conditions])

    # ---- the language

    def load(self, name: str, index: Index, leaf: Expr) -> str:
        offset = self._strided(name, index) if name in self.strided else self.offset(leaf.shapes, index)
        mask = self.mask(offset)
        text = f"tl.load({name}{f' + {offset}' if offset and offset != '0' else ''}"
        text += f", mask={mask}, other=0)" if mask else ")"
        text = f"{text}.to(tl.float32)" if leaf.is_float else text
        return text if self.is_inline else self.name(text, "x" + name.removeprefix("in_"))

    def store(self, output: Output, offset: str, index: Index) -> None:
        """Write a result; the store itself converts, so a last rounding is left to it."""
        text = strip_parentheses(self.at(output.expr, index))
        last = output.expr
        while last.kind == "remap":
            last = last.args[0]
        if self.lowering.roundings.get((last.rounding or "").split(" ")[0]) == output.dtype:
            text = _ROUNDED.sub("", text)
        mask = self.mask(offset)
        line = f"tl.store({output.name} + {offset}, {strip_parentheses(text)}{f', mask={mask}' if mask else ''})"
        self.write([line], self.depth(f"{offset} {text}"))

    def round(self, text: str, rounding: str) -> str:
        where = self.lowering.roundings[rounding.split(" ")[0]]
        if where.startswith("torch."):
            return f"{_grouped(text)}.to(tl.{where[6:]}).to(tl.float32)"
        name = where.removesuffix(".dtype")
        leaf = next((leaf.name for leaf in self.lowering.leaves if leaf.text.startswith(name)), None)
        if leaf is None:
            raise OutsideFamiliesError("no array has the dtype to round to")
        text_of = f"{leaf}.dtype.element_ty"
        short = next((key for key, value in self.types.items() if value == text_of), f"T{len(self.types) or ''}")
        self.types[short] = text_of
        return f"{_grouped(text)}.to({short}).to(tl.float32)"

    def as_float(self, text: str) -> str:
        return (
            text if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?|float\(.*\)|k\d+", text) else f"{_grouped(text)}.to(tl.float32)"
        )


def _grouped(text: str) -> str:
    """In parentheses, where a method call or a factor would bind to its last operand only."""
    return text if re.fullmatch(r"\w+|tl\.\w+\([^()]*\)", text) or strip_parentheses(text) != text else f"({text})"
