"""The numba loops of a reduction over the last axis but one: the sums of all columns at once, row by row.

Memory is then read in the order in which it lies, and the inner loop vectorises; a sum for each column on its own would
stride through it.
"""

from __future__ import annotations

from collections.abc import Sequence

from trajectories.policies.expert_emit import strip_parentheses
from trajectories.policies.expert_expr import Expr, Output
from trajectories.policies.expert_index import sizes
from trajectories.policies.expert_numba import NumbaEmitter
from trajectories.policies.expert_shapes import Shapes

_STEP = {"sum": "{a} += {x}", "mean": "{a} += {x}", "max": "{a} = max({a}, {x})", "min": "{a} = min({a}, {x})"}
_START = {"sum": "0", "mean": "0", "max": "-np.inf", "min": "np.inf"}


class ColumnEmitter(NumbaEmitter):
    """A kernel that takes the column form where it fits, else its base's."""

    def _nest(self, outputs: list[Output], reductions: list[Expr]) -> list[str]:
        if not self._fits(outputs, reductions):
            return super()._nest(outputs, reductions)
        space, axes = self._space(outputs, reductions)
        rank = len(space[0])
        row = axes[0]
        variables = [*(f"i{axis}" for axis in range(rank - 1)), "j"]
        ranges = {variable: self.dim(sizes(space, axis), space, axis) for axis, variable in enumerate(variables)}
        self.outer = [variables[axis] for axis in range(row)]
        self.num_outer = len(self.outer)
        self.depths |= {variable: depth + 1 for depth, variable in enumerate(variables)}
        self.lines = [[] for _ in range(self.num_outer + 1)]
        block, width = self.lines[-1], ranges["j"]
        self.body, steps = [], []
        for number, expr in enumerate(reductions):
            value = strip_parentheses(self.at(expr.args[0], tuple(variables)))
            self.lines[0].append(f"a{number} = np.empty({width}, np.float32)")
            block.append(f"a{number}[:] = {_START[expr.fn]}")
            steps.append(_STEP[expr.fn].format(a=f"a{number}[j]", x=value))
        inner = [f"    for j in range({width}):", *("        " + line for line in [*self.body, *steps])]
        block += [f"for {variables[row]} in range({ranges[variables[row]]}):", *inner]
        return self._epilogue(outputs, reductions, variables, row, ranges)

    def _fits(self, outputs: Sequence[Output], reductions: Sequence[Expr]) -> bool:
        if not reductions:
            return False
        space: Shapes = reductions[0].args[0].shapes
        rank = len(space[0])
        return all(
            expr.level == 1 and expr.is_float and expr.data[0] == (rank - 2,) and expr.args[0].shapes == space
            for expr in reductions
        ) and all(output.expr.level == 1 and output.expr.shapes != space for output in outputs)

    def _epilogue(
        self,
        outputs: Sequence[Output],
        reductions: Sequence[Expr],
        variables: list[str],
        row: int,
        ranges: dict[str, str],
    ) -> list[str]:
        """The loop over the finished columns."""
        self.memo = {key: value for key, value in self.memo.items() if self.depth(value) <= self.num_outer}
        for number, expr in enumerate(reductions):
            mean = f"a{number}[j] / F({ranges[variables[row]]})"
            self.results[id(expr)] = f"({mean})" if expr.fn == "mean" else f"a{number}[j]"
        self.outer, rank = [*self.outer, "j"], len(variables)
        self.body = []
        for output in outputs:
            kept = output.expr.rank == rank
            index = tuple("0" if axis == row else text for axis, text in enumerate(variables) if kept or axis != row)
            value = strip_parentheses(self.at(output.expr, index))
            self.body.append(f"{output.name}[{', '.join(index)}] = {value}")
        self.outer = self.outer[:-1]
        self.lines[-1] += [f"for j in range({ranges['j']}):", *("    " + line for line in self.body)]
        return self._close(ranges)
