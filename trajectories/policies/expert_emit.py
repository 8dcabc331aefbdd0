"""Text of an expression at an index: what the numba and the Triton writers share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from trajectories.policies.expert_expr import Expr, walk
from trajectories.policies.expert_index import Index, broadcast_index, sizes, source_index
from trajectories.policies.expert_ir import OutsideFamiliesError
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_shapes import Shapes

MAX_INLINE = 70
"""Characters of an expression before it gets a name of its own."""
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Slip:
    """What a wrong first try gets wrong in the kernel (expert_mistakes.py); none of it in a right one."""

    templates: Mapping[str, str] = field(default_factory=dict)
    """Operator -> the wrong formula."""
    forgets_rounding: bool = False


class Emitter:
    """Turns expressions into text; subclasses say how their language loads, rounds and calls."""

    templates: Mapping[str, str] = MappingProxyType({})

    def __init__(self, lowering: Lowering, slip: Slip | None = None, roots: Sequence[Expr] = ()) -> None:
        """roots: what is written, if not all outputs of the lowering."""
        self.lowering, self.slip = lowering, slip or Slip()
        self.memo: dict[tuple[int, Index], str] = {}
        self.depths: dict[str, int] = {}
        """Loop variable or temporary -> how many loops are open where it is set."""
        self.named: dict[str, str] = {}
        """Text -> the temporary that holds it, outside the innermost loop."""
        self.is_inline = False
        self.num_names = 0
        self.num_outer = 0
        """Loops outside the innermost one."""
        roots = roots or [output.expr for output in lowering.outputs]
        self.uses = Counter(id(arg) for expr in self.all_exprs(roots) for arg in expr.args)

    # ---- what a subclass provides

    def load(self, name: str, index: Index, leaf: Expr) -> str:
        raise NotImplementedError

    def round(self, text: str, rounding: str) -> str:
        raise NotImplementedError

    def as_float(self, text: str) -> str:
        """A number or an integer value as a float32."""
        raise NotImplementedError

    def assign(self, name: str, text: str, depth: int) -> None:
        raise NotImplementedError

    def reduced(self, expr: Expr, index: Index) -> str:
        raise NotImplementedError

    def concatenated(self, expr: Expr, index: Index) -> str:
        raise NotImplementedError

    def special(self, expr: Expr, index: Index) -> str:
        """Kinds that only some languages have: padding, windows, running sums."""
        raise OutsideFamiliesError(f"{expr.fn or expr.kind} is outside my families here")

    # ---- shared

    @staticmethod
    def all_exprs(roots: Sequence[Expr]) -> list[Expr]:
        return list({id(expr): expr for root in roots for expr in walk(root)}.values())

    def dim(self, wanted: tuple[int, ...], space: Shapes = (), space_axis: int = -1) -> str:
        """A size, read from an array that has it in every graph; a literal if all graphs have the same.

        space, space_axis: where the size stands; an array with these shapes, or that axis, is preferred, so that two
        dimensions that happen to be equal are not taken for each other.
        """
        arrays = [(output.name, output.expr.shapes) for output in self.lowering.outputs]
        arrays += [(leaf.name, leaf.expr.shapes) for leaf in self.lowering.leaves]
        axes = [
            (
                (
                    shapes == space and axis == space_axis,
                    len(space) > 0 and axis - len(shapes[0]) == space_axis - len(space[0]),
                ),
                name,
                axis,
            )
            for name, shapes in arrays
            for axis in range(len(shapes[0]))
            if sizes(shapes, axis) == wanted and (set(wanted) != {1} or shapes == space)
        ]
        if axes:
            _, name, axis = max(axes, key=lambda item: item[0])
            return self.size_text(name, axis)
        return self.lowering.literal(wanted)

    def size_text(self, name: str, axis: int) -> str:
        return f"{name}.shape[{axis}]"

    def depth(self, text: str) -> int:
        return max((self.depths.get(name, 0) for name in _NAME.findall(text)), default=0)

    def at(self, expr: Expr, index: Index) -> str:
        """Text of the expression at an index; names it where it is used again or long."""
        key = (id(expr), index)
        if key in self.memo:
            return self.memo[key]
        if expr.kind == "literal":
            return expr.fn
        if expr.kind == "remap":
            return self.at(expr.args[0], source_index(expr, index, self.dim))
        if expr.kind == "reduce":
            text = self.reduced(expr, index)
        elif expr.kind == "leaf":
            text = self.load(expr.fn, index, expr)
        elif expr.kind == "gather":
            text = self.load_gathered(expr, index)
        elif expr.kind == "cat":
            text = self.concatenated(expr, index)
        elif expr.kind == "iota":
            text = self.counted(expr, index)
        elif expr.kind == "pointwise":
            text = self.pointwise(expr, index)
        else:
            text = self.special(expr, index)
        if self.is_inline or expr.kind == "reduce":
            return text
        if self.uses[id(expr)] > 1 or (self.uses[id(expr)] and len(text) > MAX_INLINE):
            text = self.name(text)
        self.memo[key] = text
        return text

    def counted(self, expr: Expr, index: Index) -> str:
        """An element of arange."""
        start, step, _ = expr.data
        text = index[0] if step == "1" else f"{index[0]} * {step}"
        return text if start == "0" else f"({text} + {start})"

    def load_gathered(self, expr: Expr, index: Index) -> str:
        """data of a gather: the table's axis, and whether the indices have the result's shape (torch.gather)."""
        ids, table = expr.args
        axis, is_elementwise = expr.data
        after = axis + (1 if is_elementwise else ids.rank)
        row = self.at(ids, index if is_elementwise else index[axis:after])
        if self.depth(row) <= self.num_outer and not self.is_inline:
            row = self.name(row)
        place = (*index[:axis], row, *index[after:])
        return self.load_row(table, place, expr) if table.kind == "leaf" else self.at(table, place)

    def load_row(self, table: Expr, index: Index, expr: Expr) -> str:
        """One element of a gathered row."""
        return self.load(table.fn, index, table)

    def pointwise(self, expr: Expr, index: Index) -> str:
        if expr.fn not in self.templates:
            raise OutsideFamiliesError(f"{expr.fn} is outside my families on this device")
        template = self.slip.templates.get(expr.fn, self.templates[expr.fn])
        texts = []
        for position, arg in enumerate(expr.args):
            text = self.at(arg, broadcast_index(arg, expr.shapes, index, self.dim))
            is_condition = expr.fn == "where" and position == 0
            if expr.is_float and not is_condition and (arg.kind == "literal" or not arg.is_float):
                text = self.as_float(text)
            texts.append(text)
        inner = max((self.depth(text) for text in texts), default=0)
        for position, arg in enumerate(expr.args):
            text, own = texts[position], broadcast_index(arg, expr.shapes, index, self.dim)
            is_repeated = template.count(f"{{{position}}}") > 1
            is_invariant = arg.kind == "pointwise" and inner > self.num_outer >= self.depth(text)
            if (is_repeated or is_invariant) and not _NAME.fullmatch(text) and not self.is_inline:
                texts[position] = self.memo[(id(arg), own)] = self.name(text)
        for position, text in enumerate(texts):
            if re.search(rf"(\w\(|, )\{{{position}\}}[,)]", template):  # an argument of a call
                texts[position] = strip_parentheses(text)
        text = template.format(*texts)
        return self.round(text, expr.rounding) if expr.rounding and not self.slip.forgets_rounding else text

    def name(self, text: str, hint: str = "") -> str:
        """A temporary for the text, the same one for the same text while the loops around it are open."""
        if _NAME.fullmatch(text):
            return text
        if text in self.named:
            return self.named[text]
        name = hint if hint and hint not in self.depths else f"{hint and hint + '_'}t{self.num_names}"
        self.num_names += name != hint
        depth = self.depth(text)
        self.depths[name] = depth
        self.assign(name, strip_parentheses(text), depth)
        if depth <= self.num_outer:
            self.named[text] = name
        return name


def strip_parentheses(text: str) -> str:
    """Without the parentheses around the whole."""
    if not text.startswith("("):
        return text
    level = 0
    for position, char in enumerate(text):
        level += {"(": 1, ")": -1}.get(char, 0)
        if level == 0:
            return strip_parentheses(text[1:-1]) if position == len(text) - 1 else text
    return text
