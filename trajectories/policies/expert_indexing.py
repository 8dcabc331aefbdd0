"""Lowering of what moves elements and computes nothing: views, joins, repeats, gathers, constants."""

from __future__ import annotations

from typing import Any

from trajectories.policies.expert_dims import structural_dim
from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_infer_moves import arange_bounds, joined_axis, repeat_counts
from trajectories.policies.expert_ir import LIKE_FACTORIES, Node, OutsideFamiliesError, Ref, argument
from trajectories.policies.expert_lower import Lowering

INDEXING = {"roll", "cat", "stack", "embedding", "index_select", "gather", "repeat", "tile", "repeat_interleave", "pad"}


class IndexLowering(Lowering):
    """Lowering with the operators that only move elements."""

    def _arg(self, index: int, position: int, name: str = "", default: Any = None) -> Expr:
        value = argument(self.node(index), position, name, default)
        return self.operand(index, value, lambda node: argument(node, position, name, default))

    def _indexed(self, index: int) -> Expr:
        """One of INDEXING."""
        node, shapes = self.node(index), self.shapes(index)
        if node.op == "roll":
            return self._roll(index, node)
        if node.op in ("cat", "stack"):
            return self._joined(index, node)
        x = self._arg(index, 0)
        if node.op == "embedding":
            table = self._arg(index, 1)
            return Expr("gather", shapes, (x, table), data=(0, False), is_float=table.is_float)
        if node.op in ("index_select", "gather"):
            axis = argument(node, 1, "dim") % x.rank
            data = (axis, node.op == "gather")
            return Expr("gather", shapes, (self._arg(index, 2, "index"), x), data=data, is_float=x.is_float)
        if node.op == "repeat_interleave":
            counts = [argument(program.nodes[index], 1, "repeats") for program in self.programs]
            return self.remap(x, shapes, node.op, (argument(node, 2, "dim") % x.rank, self.literal(counts)))
        if node.op == "pad":
            return self._padded(index, x)
        rows = [repeat_counts(program.nodes[index]) for program in self.programs]
        counts = [self.literal([row[axis] for row in rows]) for axis in range(len(rows[0]))]
        return self.remap(x, shapes, "repeat", counts)

    def _joined(self, index: int, node: Node) -> Expr:
        shapes = self.shapes(index)
        axis = joined_axis(node, len(shapes[0]))
        parts = [self.expr(ref.node) for ref in node.args[0]]
        if node.is_float:
            parts = [part if part.is_float else self.pointwise("float", part) for part in parts]
        if node.op == "stack":
            single = tuple((*shape[:axis], 1, *shape[axis + 1 :]) for shape in shapes)
            parts = [self.remap(part, single, "unsqueeze", [axis]) for part in parts]
        return Expr("cat", shapes, tuple(parts), data=axis, is_float=node.is_float)

    def _padded(self, index: int, x: Expr) -> Expr:
        """data: axis -> elements before and after it, as text."""
        rows = [argument(program.nodes[index], 1, "pad") for program in self.programs]
        before = {}
        for position in range(len(rows[0]) // 2):
            if any(row[2 * position] or row[2 * position + 1] for row in rows):
                sides = (self.literal([row[2 * position + side] for row in rows]) for side in (0, 1))
                before[x.rank - 1 - position] = tuple(sides)
        if not before:
            return x
        value = argument(self.node(index), 3, "value", 0)
        fill = self.constant([0.0 if value is None else value])
        return Expr("pad", self.shapes(index), (x, fill), data=before, is_float=x.is_float)

    def _constant(self, index: int) -> Expr:
        """zeros, ones, full and their _like forms, and arange."""
        node, shapes = self.node(index), self.shapes(index)
        if node.op == "arange":
            bounds = [arange_bounds(program.nodes[index]) for program in self.programs]
            start, step = (self.literal([bound[i] for bound in bounds]) for i in (0, 2))
            size = self.literal([shape[0] for shape in shapes])
            count = Expr("iota", shapes, data=(start, step, size), is_float=isinstance(bounds[0][0], float))
            return (
                self.pointwise("float", count, rounding=self.rounding(self.dtypes(index))) if node.is_float else count
            )
        value: Any = argument(node, 1, "fill_value") if node.op.startswith("full") else int(node.op.startswith("ones"))
        if isinstance(value, Ref):
            raise OutsideFamiliesError(f"{node.op} of a tensor is outside my families")
        if node.dtype == "bool":
            value = bool(value)
        number = self.constant([float(value) if node.is_float else value])
        if not shapes[0]:
            return number
        axes = range(len(shapes[0]))
        sizes = [self.literal([shape[axis] for shape in shapes]) for axis in axes]
        if node.op in LIKE_FACTORIES:
            model = self._arg(index, 0)
            sizes = [structural_dim(model, axis) or sizes[axis] for axis in axes]
        return self.remap(number, shapes, "expand", sizes)

    def _roll(self, index: int, node: Node) -> Expr:
        x = self._arg(index, 0)
        shifts, dims = argument(node, 1, "shifts"), argument(node, 2, "dims")
        if dims is None:
            raise OutsideFamiliesError("roll over the flattened tensor is outside my families")
        plural = isinstance(dims, tuple)
        data = {}
        for at, dim in enumerate(dims if plural else (dims,)):
            values = [argument(program.nodes[index], 1, "shifts") for program in self.programs]
            data[dim % x.rank] = self.literal([value[at] for value in values] if isinstance(shifts, tuple) else values)
        return self.remap(x, self.shapes(index), "roll", data)

    def _view_data(self, index: int) -> Any:
        node = self.node(index)
        rank = len(self.shapes(node.args[0].node)[0])
        rest = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
        if node.op == "permute":
            return [axis % rank for axis in rest]
        if node.op == "transpose":
            order = list(range(rank))
            first, second = rest[0] % rank, rest[1] % rank
            order[first], order[second] = order[second], order[first]
            return order
        if node.op == "unsqueeze":
            return [argument(node, 1, "dim") % (rank + 1)]
        if node.op == "squeeze":
            return [argument(node, 1, "dim") % rank]
        if node.op in ("select", "narrow"):
            return self._selected(index, rank)
        if node.op == "getitem":
            return self._slices(index, rank)
        if node.op in ("view", "reshape", "expand"):
            return self._view_sizes(index)
        return None

    def _view_sizes(self, index: int) -> list[str | None]:
        """The sizes that a view names, as text; None for -1."""
        rows = []
        for program in self.programs:
            node = program.nodes[index]
            rest = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
            rows.append(tuple(node.kwargs.get("shape", node.kwargs.get("size", rest))))
        columns = [[row[axis] for row in rows] for axis in range(len(rows[0]))]
        return [None if column[0] == -1 else self.literal(column) for column in columns]

    def _slices(self, index: int, rank: int) -> list[Any]:
        """For each item of the index: None (a new axis), ("int", text), or ("slice", start, step, stop)."""
        items: list[Any] = []
        rows = [program.nodes[index].args[1] for program in self.programs]
        rows = [list(row) if isinstance(row, tuple) else [row] for row in rows]
        for row in rows:
            if Ellipsis in row:
                at = row.index(Ellipsis)
                row[at : at + 1] = [slice(None)] * (rank - sum(x is not None and x is not Ellipsis for x in row))
        for parts in zip(*rows, strict=True):
            if parts[0] is None:
                items.append(None)
            elif isinstance(parts[0], slice):
                stop = None if parts[0].stop is None else self._start([part.stop for part in parts])
                items.append(("slice", self._start([part.start or 0 for part in parts]), parts[0].step or 1, stop))
            else:
                items.append(("int", self._start(list(parts))))
        return items

    def _start(self, values: list[int]) -> str:
        """Where a slice begins, as text; from the end as "-n"."""
        if min(values) >= 0:
            return self.literal(values)
        if max(values) >= 0:
            raise OutsideFamiliesError("a slice that begins at either end is outside my families")
        return "-" + self.literal([-value for value in values])

    def _selected(self, index: int, rank: int) -> list[Any]:
        """select(dim, at) and narrow(dim, start, length) as items of an index."""
        node = self.node(index)
        axis = argument(node, 1, "dim") % rank
        name = "index" if node.op == "select" else "start"
        start = self._start([argument(program.nodes[index], 2, name) for program in self.programs])
        chosen: Any = ("int", start) if node.op == "select" else ("slice", start, 1, "?")
        return [chosen if at == axis else ("slice", "0", 1, None) for at in range(rank)]
