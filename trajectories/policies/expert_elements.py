"""What each element of a Triton tile does by itself: short reductions, windows, padding, joins, running sums."""

from __future__ import annotations

from collections.abc import Sequence

from trajectories.policies.expert_emit import strip_parentheses
from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_index import Index, sizes
from trajectories.policies.expert_ir import OutsideFamiliesError
from trajectories.policies.expert_parts import MAX_NESTED
from trajectories.policies.expert_triton import TritonEmitter

START = {"sum": "0.0", "mean": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}
STEP = {"sum": "{a} + {x}", "mean": "{a} + {x}", "max": "tl.maximum({a}, {x})", "min": "tl.minimum({a}, {x})"}
CALL = {"sum": "tl.sum", "mean": "tl.sum", "max": "tl.max", "min": "tl.min"}


class ElementWriter(TritonEmitter):
    """Text of expressions that need loops or conditions of their own."""

    def operand(self, expr: Expr) -> str:
        text = strip_parentheses(self.at(expr.args[0], self.index))
        if expr.is_float:
            return text
        if expr.fn not in ("sum", "mean", "cumsum"):
            raise OutsideFamiliesError("the largest or smallest of integers is outside my families")
        return f"({text}).to(tl.int64)"

    def reduced_alone(self, expr: Expr, index: Index) -> str:
        """A short reduction at any place: every element of the tile adds up its own operands."""
        axes, keeps = expr.data
        source = expr.args[0]
        total = 1
        for axis in axes:
            total *= max(sizes(source.shapes, axis))
        if total > MAX_NESTED:
            raise OutsideFamiliesError("a reduced value is read at another place than its own")
        rest = iter(text for axis, text in enumerate(index) if not (keeps and axis in axes))
        counters = {axis: f"q{self.num_names + position}" for position, axis in enumerate(axes)}
        self.num_names += len(axes)
        place = tuple(counters[axis] if axis in axes else next(rest) for axis in range(source.rank))
        heads = [f"for {counters[axis]} in range({self.dim(sizes(source.shapes, axis), source.shapes, axis)}):"
                 for axis in axes]  # fmt: skip
        value = self.inline(source, place)
        if not expr.is_float and expr.fn not in ("sum", "mean"):
            raise OutsideFamiliesError("the largest or smallest of integers is outside my families")
        if not expr.is_float:
            value = f"({value}).to(tl.int64)"
        name = self._accumulate(expr.fn, heads, [], value, expr.is_float, "".join(index) + value)
        count = self.product_text(source.shapes, axes)
        return f"({name} / {count})" if expr.fn == "mean" else name

    def _accumulate(
        self, fn: str, heads: Sequence[str], steps: Sequence[str], value: str, is_float: bool, sides: str
    ) -> str:
        """Lines of a nest of loops that adds up, or takes the largest of, a value."""
        name = f"a{self.num_names}"
        self.num_names += 1
        start, dtype = (START[fn], "tl.float32") if is_float else ("0", "tl.int64")
        self.dependences[name] = self.depends_on(sides)
        body = [*steps, f"{name} = {STEP[fn].format(a=name, x=strip_parentheses(value))}"]
        lines = [f"{name} = tl.full({self.tile}, {start}, {dtype})"]
        lines += ["    " * depth + head for depth, head in enumerate(heads)]
        lines += ["    " * len(heads) + line for line in body]
        self.write(lines, self.depth(name))
        self.depths[name] = self.depth(name)
        return name

    def inline(self, expr: Expr, index: Index) -> str:
        """Text of an expression that gives no names to its parts."""
        before, self.is_inline = self.is_inline, True
        text = self.at(expr, index)
        self.is_inline = before
        return text

    def window(self, expr: Expr, index: Index) -> str:
        """A pooling; NormLowering._pool says what data holds."""
        source = expr.args[0]
        kernel, stride, padding, dilation, counts_padding = expr.data[:5]
        number = self.num_names
        self.num_names += 1
        names = [f"y{number}", f"x{number}_"]
        steps, inside = [], []
        for axis in (0, 1):
            at = index[axis - 2]
            text = at if stride[axis] == 1 else f"{at} * {stride[axis]}"
            text += f" + {names[axis]}" if dilation[axis] == 1 else f" + {names[axis]} * {dilation[axis]}"
            text += f" - {padding[axis]}" if padding[axis] else ""
            place = f"p{'yx'[axis]}{number}"
            self.dependences[place] = self.depends_on(at)
            steps.append(f"{place} = {text}")
            size = self.dim(sizes(source.shapes, axis - 2), source.shapes, source.rank - 2 + axis)
            inside.append(f"({place} < {size})" if not padding[axis] else f"({place} >= 0) & ({place} < {size})")
        known = f"inside{number}"
        steps.append(f"{known} = {' & '.join(inside)}")
        self.dependences[known] = self.depends_on("".join(steps))
        self.conditions.append(known)
        value = self.inline(source, (*index[:-2], f"py{number}", f"px{number}"))
        self.conditions.pop()
        heads = [f"for {name} in tl.static_range({size}):" for name, size in zip(names, kernel, strict=True)]
        start = START[expr.fn]
        value = f"tl.where({known}, {strip_parentheses(value)}, {start})"
        sides = "".join(index) + value
        total = self._accumulate("max" if expr.fn == "max" else "sum", heads, steps, value, True, sides)
        if expr.fn == "max":
            return total
        if counts_padding:
            return f"({total} / {kernel[0] * kernel[1]})"
        count = self._accumulate("sum", heads, steps, f"{known}.to(tl.float32)", True, sides)
        return f"({total} / {count})"

    def special(self, expr: Expr, index: Index) -> str:
        if expr.kind == "window":
            return self.window(expr, index)
        if expr.kind == "pad":
            return self._padded(expr, index)
        if expr.kind == "scan" and index == self.index and not self.part.loops:
            return f"tl.cumsum(tl.where(m_col, {self.operand(expr)}, 0), 1)"
        return super().special(expr, index)

    def _padded(self, expr: Expr, index: Index) -> str:
        """data: axis -> elements before and after it; the fill value is the second operand."""
        source, fill = expr.args
        place, inside = list(index), []
        for axis, (before, _) in expr.data.items():
            size = self.dim(sizes(source.shapes, axis), source.shapes, axis)
            place[axis] = f"({index[axis]} - {before})" if before != "0" else index[axis]
            inside.append(f"({index[axis]} >= {before})" if before != "0" else "")
            inside.append(f"({place[axis]} < {size})")
        known = (
            self.name(" & ".join(text for text in inside if text))
            if not self.is_inline
            else (" & ".join(text for text in inside if text))
        )
        self.conditions.append(known)
        value = self.inline(source, tuple(place))
        self.conditions.pop()
        return f"tl.where({known}, {strip_parentheses(value)}, {self.at(fill, ())})"

    def concatenated(self, expr: Expr, index: Index) -> str:
        """Each element from the part that holds it; loads of the others are masked off."""
        before, self.is_inline = self.is_inline, True
        axis, offset, closing, text = expr.data, "", "", ""
        lower: list[str] = []
        for position, part in enumerate(expr.args):
            at = f"{index[axis]}{offset}"
            size = self.dim(sizes(part.shapes, axis), part.shapes, axis)
            is_last = position == len(expr.args) - 1
            own = lower + ([] if is_last else [f"({at} < {size})"])
            self.conditions += own
            value = self.at(part, (*index[:axis], at, *index[axis + 1 :]))
            del self.conditions[len(self.conditions) - len(own) :]
            lower = [f"({at} >= {size})"]
            if is_last:
                text += strip_parentheses(value)
            else:
                text += f"tl.where({at} < {size}, {strip_parentheses(value)}, "
                closing += ")"
                offset += f" - {size}"
        self.is_inline = before
        return text + closing
