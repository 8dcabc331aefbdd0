"""Writes a region as a numba kernel: nested loops over float32 arrays, one inner loop for each level of reductions.

Half types reach the kernel as float32 (half.py widens them) and are rounded after every eager operator with rnd.
"""

from __future__ import annotations

import itertools

from trajectories.policies.expert_emit import Emitter, Slip, strip_parentheses
from trajectories.policies.expert_expr import Expr, Output
from trajectories.policies.expert_formulas import NUMBA
from trajectories.policies.expert_index import Index, sizes
from trajectories.policies.expert_ir import OutsideFamiliesError
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_shapes import Shapes

_TRANSCENDENTAL = {"exp", "gelu", "gelu_tanh", "sigmoid", "silu", "tanh", "erf", "log", "pow", "softplus", "mish"}
_ACCUMULATE = {
    "sum": ("0.0", "{a} += {x}"),
    "mean": ("0.0", "{a} += {x}"),
    "max": ("F(-np.inf)", "{a} = max({a}, {x})"),
    "min": ("F(np.inf)", "{a} = min({a}, {x})"),
}


class NumbaEmitter(Emitter):
    """One kernel for the outputs of a lowering."""

    templates = NUMBA

    def __init__(self, lowering: Lowering, slip: Slip | None = None) -> None:
        super().__init__(lowering, slip)
        self.lines: list[list[str]] = [[]]
        """Statements by the number of loops open around them."""
        self.body: list[str] = []
        """Statements of the innermost loop that is being written."""
        self.buffers: dict[int, str] = {}
        self.results: dict[int, str] = {}
        self.as_output: dict[int, str] = {}
        self._kept: list[Expr] = []
        self.outer: list[str] = []
        self.level = 0
        self.canonical: Index = ()
        """The loops' own variables: what is buffered is read back there alone."""
        self.as_bits: set[str] = set()
        """Leaves that the kernel takes as stored bits."""

    def kernel(self, name: str) -> str:
        """The kernel's source. Raises OutsideFamiliesError."""
        exprs = list(self.all_exprs([output.expr for output in self.lowering.outputs]))
        if any(expr.kind == "scan" for expr in exprs):
            raise OutsideFamiliesError("a running sum is outside my families here")
        reductions = [expr for expr in exprs if expr.kind == "reduce"]
        text: list[str] = []
        if reductions:
            text += self._nest(self.lowering.outputs, reductions)
        else:
            for shapes in dict.fromkeys(output.expr.shapes for output in self.lowering.outputs):
                text += self._nest([output for output in self.lowering.outputs if output.expr.shapes == shapes], [])
        return "\n".join([f"def {name}({{arguments}}):", *("    " + line for line in text)])

    # ---- one nest of loops

    def _nest(self, outputs: list[Output], reductions: list[Expr]) -> list[str]:
        space, axes = self._space(outputs, reductions)
        rank = len(space[0])
        if rank == 0:
            raise OutsideFamiliesError("a result without dimensions is outside my families here")
        inner = axes or (rank - 1,)
        variables = ["j" if axis == rank - 1 and axis in inner else f"i{axis}" for axis in range(rank)]
        self.outer = [variables[axis] for axis in range(rank) if axis not in inner]
        self.num_outer = len(self.outer)
        order = self.outer + [variables[axis] for axis in inner]
        self.depths |= {variable: depth + 1 for depth, variable in enumerate(order)}
        self.lines = [[] for _ in range(self.num_outer + 1)]
        self.memo.clear()
        self.named.clear()
        self.results.clear()
        ranges = {variable: self.dim(sizes(space, axis), space, axis) for axis, variable in enumerate(variables)}
        heads = [f"for {variables[axis]} in range({ranges[variables[axis]]}):" for axis in inner]
        self._plan_buffers(
            outputs,
            reductions,
            [ranges[variables[axis]] for axis in inner],
            ", ".join(variables[axis] for axis in inner),
        )
        self.canonical = tuple(variables)
        index, last = self.canonical, max((expr.level for expr in reductions), default=0)
        for self.level in range(last + 1):
            self.body, block = [], self.lines[-1]
            stored = [output for output in outputs if output.expr.shapes == space and output.expr.level == self.level]
            reduced = [expr for expr in reductions if expr.level == self.level + 1]
            for expr in self._buffered(self.level):
                if not any(output.expr is expr for output in stored):
                    self.body.append(f"{self.buffers[id(expr)]} = {strip_parentheses(self.at(expr, index))}")
                    self._reread(expr, index)
            for output in stored:
                target = f"{output.name}[{', '.join(index)}]"
                self.body.append(f"{target} = {strip_parentheses(self.at(output.expr, index))}")
                self._reread(output.expr, index)
            for expr in reduced:
                total = f"r{len(self.results)}"
                start, step = _ACCUMULATE[expr.fn]
                block.append(f"{total} = {start if expr.is_float else '0'}")
                self.depths[total] = self.num_outer
                self.body.append(step.format(a=total, x=strip_parentheses(self.at(expr.args[0], index))))
                self.results[id(expr)] = total
            if self.body:
                block += _indent(heads, self.body)
            for expr in reduced:
                self._finish(expr, block, " * ".join(ranges[variables[axis]] for axis in inner))
            self.memo = {key: value for key, value in self.memo.items() if self.depth(value) <= self.num_outer}
        self._store_rows(outputs, space)
        return self._close(ranges)

    def _finish(self, expr: Expr, block: list[str], count: str) -> None:
        """Sums run in float64 and are float32 from then on, as eager's are."""
        total = self.results[id(expr)]
        if expr.fn not in ("sum", "mean") or not expr.is_float:
            return
        name = f"m{total[1:]}"
        count = f"({count})" if " " in count else count
        block.append(f"{name} = F({total}{f' / {count}' if expr.fn == 'mean' else ''})")
        self.depths[name] = self.num_outer
        self.results[id(expr)] = name

    def _space(self, outputs: list[Output], reductions: list[Expr]) -> tuple[Shapes, tuple[int, ...]]:
        if not reductions:
            return outputs[0].expr.shapes, ()
        space, axes = reductions[0].args[0].shapes, reductions[0].data[0]
        if any(expr.args[0].shapes != space or expr.data[0] != axes for expr in reductions):
            raise OutsideFamiliesError("its reductions run over different axes")
        return space, axes

    def _plan_buffers(self, outputs: list[Output], reductions: list[Expr], dims: list[str], index: str) -> None:
        """Full values that a later loop needs again and that are dear to compute: kept in a row buffer."""
        self.buffers, self._kept, self.as_output = {}, [], {}
        if not reductions:
            return
        space = reductions[0].args[0].shapes
        roots = [(output.expr, output.expr.level) for output in outputs]
        roots += [(expr.args[0], expr.args[0].level) for expr in reductions]
        as_output = {id(output.expr): output.name for output in outputs if output.expr.shapes == space}
        for root, level in roots:
            stack = [root]
            while stack:
                expr = stack.pop()
                if expr.kind == "reduce":
                    continue
                if expr.level < level and expr.shapes == space and _cost(expr, as_output) > 1:
                    if id(expr) not in self.buffers and id(expr) not in as_output:
                        name = f"b{len(self.buffers)}"
                        shape = dims[0] if len(dims) == 1 else f"({', '.join(dims)})"
                        self.lines[0].append(f"{name} = np.empty({shape}, np.float32)")
                        self.buffers[id(expr)] = f"{name}[{index}]"
                        self._kept.append(expr)
                    continue
                stack += expr.args
        self.as_output = as_output

    def _buffered(self, level: int) -> list[Expr]:
        return [expr for expr in self._kept if expr.level == level]

    def _reread(self, expr: Expr, index: Index) -> None:
        """Later uses read what has just been stored."""
        text = self.memo.get((id(expr), index), "")
        if not text.isidentifier():
            self.memo.pop((id(expr), index), None)

    def _store_rows(self, outputs: list[Output], space: Shapes) -> None:
        """Outputs that have one element for each outer index."""
        self.body = self.lines[-1]
        for output in outputs:
            if output.expr.shapes == space:
                continue
            names = itertools.chain(self.outer, itertools.repeat(""))
            index = tuple(
                "0"
                if set(sizes(output.expr.shapes, axis)) == {1}
                and output.expr.rank == len(space[0])
                and f"i{axis}" not in self.outer
                else next(names)
                for axis in range(output.expr.rank)
            )
            if "" in index or next(names):
                raise OutsideFamiliesError("a result of another shape than its reductions leave")
            text = strip_parentheses(self.at(output.expr, index))
            self.lines[-1].append(f"{output.name}[{', '.join(index) or '()'}] = {text}")

    def _close(self, ranges: dict[str, str]) -> list[str]:
        """The nest as text: statements of depth d stand before the loop d + 1."""
        text = self.lines[-1]
        for depth in range(self.num_outer - 1, -1, -1):
            variable = self.outer[depth]
            text = [
                *self.lines[depth],
                f"for {variable} in range({ranges[variable]}):",
                *("    " + line for line in text),
            ]
        return text

    # ---- the language

    def at(self, expr: Expr, index: Index) -> str:
        if (id(expr), index) not in self.memo and expr.level < self.level and index == self.canonical:
            if id(expr) in self.buffers:
                return self.buffers[id(expr)]
            if id(expr) in self.as_output:
                return f"{self.as_output[id(expr)]}[{', '.join(index)}]"
        return super().at(expr, index)

    def load(self, name: str, index: Index, leaf: Expr) -> str:
        # arithmetic that the inner loop does not change stands outside it
        index = tuple(
            self.name(text)
            if " " in text and "[" not in text.replace(".shape[", "") and self.depth(text) <= self.num_outer
            else strip_parentheses(text)
            for text in index
        )
        return f"{name}[{', '.join(index) or '()'}]"

    def load_row(self, table: Expr, index: Index, expr: Expr) -> str:
        if expr.rounding is None:
            return self.load(table.fn, index, table)
        self.as_bits.add(table.fn)  # a whole table is not widened for the few rows that are read
        return f"wide({self.load(table.fn, index, table)}, {expr.rounding})"

    def as_float(self, text: str) -> str:
        return f"F({strip_parentheses(text)})"

    def round(self, text: str, rounding: str) -> str:
        return f"rnd({strip_parentheses(text)}, {rounding})"

    def assign(self, name: str, text: str, depth: int) -> None:
        target = self.body if depth > self.num_outer else self.lines[depth]
        target.append(f"{name} = {text}")

    def reduced(self, expr: Expr, index: Index) -> str:
        if id(expr) not in self.results or [text for text in index if text != "0"] != self.outer:
            raise OutsideFamiliesError("a reduced value is read at another place than its own")
        return self.results[id(expr)]

    def concatenated(self, expr: Expr, index: Index) -> str:
        before, self.is_inline = self.is_inline, True
        axis, offset, text = expr.data, "", ""
        for position, part in enumerate(expr.args):
            at = f"{index[axis]}{offset}"
            value = self.at(part, (*index[:axis], at, *index[axis + 1 :]))
            if position < len(expr.args) - 1:
                size = self.dim(sizes(part.shapes, axis), part.shapes, axis)
                text += f"{value} if {at} < {size} else "
                offset += f" - {size}"
            else:
                text += value
        self.is_inline = before
        return f"({text})"


def _cost(expr: Expr, stored: dict[int, str]) -> int:
    """Operators that recomputing the expression in another loop would repeat; values of earlier loops are at hand."""
    own = {"pointwise": 9 if expr.fn in _TRANSCENDENTAL else 1, "gather": 1, "cat": 1}.get(expr.kind, 0)
    return own + sum(
        _cost(arg, stored)
        for arg in expr.args
        if arg.kind != "reduce" and id(arg) not in stored and not (arg.level < expr.level and arg.kind == "pointwise")
    )


def _indent(heads: list[str], body: list[str]) -> list[str]:
    lines = ["    " * depth + head for depth, head in enumerate(heads)]
    return lines + ["    " * len(heads) + line for line in body]
