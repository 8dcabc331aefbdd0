"""From a region of a graph to scalar expressions: what one element of each output is, and which loops it needs.

The graphs of one group have the same operations and differ in shapes, dtypes and literals; the region is lowered once
for all of them. Every eager operation rounds its result to its dtype (`rounding`); the insides of a fused eager
operator (softmax, layer_norm, gelu) do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trajectories.policies.expert_expr import Expr, Leaf, Output, Region, number_text
from trajectories.policies.expert_facts import RegionFacts
from trajectories.policies.expert_ir import (
    SAME,
    VIEWS,
    Node,
    OutsideFamiliesError,
    Ref,
)
from trajectories.policies.expert_shapes import Shapes, broadcast
from trajectories.policies.expert_strides import has_order, is_contiguous, memory_order

_FLAT_VIEWS = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "contiguous"}
"""Views that leave the order of the elements as it is."""


class Lowering(RegionFacts):
    """Expressions of one region."""

    def __init__(self, region: Region, *, indexes_in_kernel: bool = False) -> None:
        """indexes_in_kernel: views of inputs are index arithmetic of the kernel, not calls in the wrapper."""
        self.indexes_in_kernel = indexes_in_kernel
        super().__init__(region)
        self.outputs: list[Output] = []
        self._exprs: dict[int, Expr] = {}
        for name in region.outputs:
            self._add_output(name)

    # ---- outputs

    def _add_output(self, name: str) -> None:
        index = self._main.variables[name]
        chain: list[int] = []
        while (
            self._is_own(index) and self.node(index).op in VIEWS | {"contiguous"} and not self._is_view_of_input(index)
        ):
            chain.insert(0, index)
            index = self.node(index).args[0].node
        moved = False
        for position, view in enumerate(chain):
            op = self.node(view).op
            if moved and op in ("contiguous", "reshape", "flatten"):
                index, chain = view, chain[position + 1 :]
                break
            moved = moved or op in ("permute", "transpose", "getitem", "expand")
        suffix = "".join(self._view_text(view) for view in chain if self.node(view).op != "contiguous")
        dtype = self.dtype_text(self.dtypes(index))
        expr = self.expr(index)
        is_merged = expr.kind == "remap" and expr.fn == "merge"
        if is_merged:  # the kernel writes the split form; the wrapper views it as the graph's shape
            expr = expr.args[0]
        if expr.kind == "leaf":
            raise OutsideFamiliesError("an output is only a view of an input; there is nothing to compute")
        merged = self.shapes(index) if is_merged else None
        orders = {memory_order(program.nodes, index) for program in self.programs}
        orders = {order for order in orders if all(has_order(p.nodes, index, order) for p in self.programs)}
        if not orders or (merged is not None and tuple(range(len(merged[0]))) not in orders):
            raise OutsideFamiliesError("the memory layout of a result differs from graph to graph")
        output = Output(f"o{len(self.outputs)}", expr, index, suffix, dtype, merged, min(orders))
        if self.indexes_in_kernel and not output.is_permuted and self._is_flat(chain):
            output.suffix, output.chain = "", tuple(chain)
        self.outputs.append(output)

    def _is_flat(self, chain: Sequence[int]) -> bool:
        """Whether views of a result are contiguous, so that it can be allocated in its last shape."""
        if any(self.node(view).op not in _FLAT_VIEWS for view in chain):
            return False
        return not any(self.is_strided(view) for view in chain)

    def is_strided(self, index: int) -> bool:
        """Whether eager's value is not contiguous in some graph."""
        return not all(is_contiguous(program.nodes, index) for program in self.programs)

    def _is_own(self, index: int) -> bool:
        return index not in self._inputs and self.node(index).op != "input"

    def _is_view_of_input(self, index: int) -> bool:
        while index not in self._inputs:
            node = self.node(index)
            if node.op not in VIEWS | SAME:
                return False
            index = node.args[0].node
        return True

    # ---- expressions

    def expr(self, index: int) -> Expr:
        if index not in self._exprs:
            is_leaf = index in self._inputs if self.indexes_in_kernel else self._is_view_of_input(index)
            self._exprs[index] = self._leaf(index) if is_leaf else self._lower(index)
        return self._exprs[index]

    def _leaf(self, index: int) -> Expr:
        text, at = "", index
        while at not in self._inputs:
            if self.node(at).op in VIEWS | {"contiguous"}:
                text = self._view_text(at) + text
            at = self.node(at).args[0].node
        name = self._inputs[at] + ("v" if text else "")
        number = sum(leaf.text.startswith(self._inputs[at]) and leaf.text != self._inputs[at] for leaf in self.leaves)
        name += str(number) if text and number else ""
        expr = Expr("leaf", self.shapes(index), fn=name, is_float=self.node(index).is_float)
        self.leaves.append(Leaf(name, self._inputs[at] + text, expr, index))
        return expr

    def _view_text(self, index: int) -> str:
        node, op = self.node(index), self.node(index).op
        if op == "contiguous":
            return ".contiguous()"
        if op == "getitem":
            return f"[{self._index_text(index)}]"
        if op == "expand_as":
            return f".expand({', '.join(map(str, node.shape or ()))})"
        args = [self._argument_text(index, position) for position in range(1, len(node.args))]
        args += [f"{key}={self._keyword_text(index, key)}" for key in node.kwargs]
        return f".{op}({', '.join(args)})"

    def _keyword_text(self, index: int, key: str) -> str:
        return self.literal([program.nodes[index].kwargs[key] for program in self.programs])

    def _argument_text(self, index: int, position: int) -> str:
        values = [program.nodes[index].args[position] for program in self.programs]
        if isinstance(values[0], tuple):
            items = [self.literal([value[i] for value in values]) for i in range(len(values[0]))]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        return self.literal(values)

    def _index_text(self, index: int) -> str:
        items = [program.nodes[index].args[1] for program in self.programs]
        rows = [item if isinstance(item, tuple) else (item,) for item in items]
        texts = []
        for parts in zip(*rows, strict=True):
            if isinstance(parts[0], slice):
                bounds = [[getattr(part, bound) for part in parts] for bound in ("start", "stop", "step")]
                start, stop, step = ("" if values[0] is None else self.literal(values) for values in bounds)
                texts.append(f"{start}:{stop}" + (f":{step}" if step else ""))
            else:
                texts.append("..." if parts[0] is Ellipsis else self.literal(parts))
        return ", ".join(texts)

    def operand(self, index: int, value: Any, get: Callable[[Node], Any]) -> Expr:
        """An operand as an expression; get finds the same operand in another program's node."""
        if isinstance(value, Ref):
            return self.expr(value.node)
        values = [get(program.nodes[index]) for program in self.programs]
        if not all(isinstance(item, int | float) for item in values):
            raise OutsideFamiliesError(f"the operand {value!r} of {self.node(index).op} is outside my families")
        return self.constant(values)

    def constant(self, values: Sequence[Any]) -> Expr:
        if len(values) == 1:
            values = list(values) * len(self.programs)
        text = self.literal(list(values), text=number_text)
        return Expr("literal", ((),) * len(self.programs), fn=text, is_float=isinstance(values[0], float))

    def pointwise(self, fn: str, *args: Expr | float, rounding: str | None = None, is_float: bool = True) -> Expr:
        exprs = tuple(arg if isinstance(arg, Expr) else self.constant([arg]) for arg in args)
        merged = next((expr for expr in exprs if expr.kind == "remap" and expr.fn == "merge"), None)
        if merged is not None and all(expr.kind == "literal" or expr.shapes == merged.shapes for expr in exprs):
            split = [self._split_like(expr, merged.args[0]) for expr in exprs]
            value = self.pointwise(fn, *split, rounding=rounding, is_float=is_float)
            return self.remap(value, merged.shapes, "merge", None)
        shapes = tuple(broadcast(*(expr.shapes[i] for expr in exprs)) for i in range(len(self.programs)))
        return Expr("pointwise", shapes, exprs, fn, rounding, is_float=is_float)

    def _split_like(self, expr: Expr, other: Expr) -> Expr:
        """An operand of a merged value, in the split form, so that both stay in one loop."""
        if expr.kind == "literal":
            return expr
        if expr.kind == "remap" and expr.fn == "merge" and expr.args[0].shapes == other.shapes:
            return expr.args[0]
        return self.remap(expr, other.shapes, "view", None)

    def reduce(self, fn: str, arg: Expr, axes: tuple[int, ...], keepdim: bool = True) -> Expr:
        shapes = tuple(
            tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdim or i not in axes)
            for shape in arg.shapes
        )
        return Expr("reduce", shapes, (arg,), fn, data=(axes, keepdim))

    def remap(self, arg: Expr, shapes: Shapes, fn: str, data: Any) -> Expr:
        return Expr("remap", shapes, (arg,), fn, data=data, is_float=arg.is_float)

    def _lower(self, index: int) -> Expr:
        """One operator; expert_operators says how."""
        raise NotImplementedError
