"""What each PyTorch operator of the expert's families computes, as scalar expressions (see expert_lower.py)."""

from __future__ import annotations

from typing import Any

from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_ir import (
    BINARY,
    CASTS,
    COMPARE,
    FLOATS,
    REDUCE,
    SAME,
    UNARY,
    VIEWS,
    Node,
    OutsideFamiliesError,
    Ref,
    argument,
)
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_shapes import reduce_axes

_COMPARE_SIGNS = {"noteq": "ne", "lte": "le", "gte": "ge"}


class OperatorLowering(Lowering):
    """Lowering with the operators' meanings."""

    def _lower(self, index: int) -> Expr:
        node = self.node(index)
        op = node.op
        rounding = self.rounding(self.dtypes(index))
        if op in SAME:
            return self.expr(node.args[0].node)
        if op in CASTS:
            return self._cast(self.expr(node.args[0].node), node, rounding)
        if op in BINARY | COMPARE:
            first, second = (self._arg(index, position) for position in (0, 1))
            return self._binary(_COMPARE_SIGNS.get(op, op), first, second, node, rounding)
        if op in VIEWS:
            return self.remap(self.expr(node.args[0].node), self.shapes(index), op, self._view_data(index))
        if op == "where":
            args = [self._arg(index, position) for position in range(3)]
            return self.pointwise("where", *args, rounding=None, is_float=node.is_float)
        if op == "masked_fill":
            x, mask = (self._arg(index, position) for position in (0, 1))
            value = self._arg(index, 2, "value")
            return self.pointwise("where", mask, value, x, rounding=rounding, is_float=node.is_float)
        if op == "roll":
            return self._roll(index, node)
        if op == "cat":
            axis = argument(node, 1, "dim", 0) % len(node.shape or ())
            parts = tuple(self.expr(ref.node) for ref in node.args[0])
            return Expr("cat", self.shapes(index), parts, data=axis, is_float=node.is_float)
        if op == "embedding":
            ids, table = self._arg(index, 0), self._arg(index, 1)
            return Expr("gather", self.shapes(index), (ids, table), rounding=rounding)
        x = self._arg(index, 0)
        if op in REDUCE:
            return self._reduction(x, node, rounding)
        if op in UNARY:
            return self._unary(index, x, node, rounding)
        if op in ("softmax", "log_softmax"):
            return self._softmax(x, node, rounding)
        if op in ("layer_norm", "rms_norm"):
            return self._norm(index, x, node, rounding)
        if op == "group_norm":
            return self._group_norm(index, x, node, rounding)
        if op == "batch_norm":
            return self._batch_norm(index, x, node, rounding)
        raise OutsideFamiliesError(f"{op} is outside my families")

    def _arg(self, index: int, position: int, name: str = "", default: Any = None) -> Expr:
        value = argument(self.node(index), position, name, default)
        return self.operand(index, value, lambda node: argument(node, position, name, default))

    def _cast(self, x: Expr, node: Node, rounding: str | None) -> Expr:
        if node.dtype in FLOATS:
            if rounding is None and x.is_float:
                return x
            return self.pointwise("cast" if x.is_float else "float", x, rounding=rounding)
        return self.pointwise("truth" if node.dtype == "bool" else "int", x, is_float=False)

    def _binary(self, op: str, first: Expr, second: Expr, node: Node, rounding: str | None) -> Expr:
        is_float = node.is_float
        if op == "pow":
            return self._power(first, second, rounding)
        if node.dtype == "bool" and op in ("add", "mul", "sub"):
            raise OutsideFamiliesError(f"{op} of booleans is outside my families")
        if op in ("bitwise_and", "bitwise_or") and node.dtype != "bool":
            raise OutsideFamiliesError(f"{op} of integers is outside my families")
        return self.pointwise(op, first, second, rounding=rounding, is_float=is_float)

    def _power(self, base: Expr, exponent: Expr, rounding: str | None) -> Expr:
        if exponent.kind == "literal":
            known = {"2": "square", "2.0": "square", "0.5": "sqrt", "-0.5": "rsqrt"}
            if exponent.fn in ("3", "3.0"):  # eager multiplies twice, in the dtype each time save for float16 on CPU
                square = self.pointwise("square", base, rounding=rounding and f"{rounding} & 16")
                return self.pointwise("mul", square, base, rounding=rounding)
            if exponent.fn in known:
                return self.pointwise(known[exponent.fn], base, rounding=rounding)
        return self.pointwise("pow", base, exponent, rounding=rounding)

    def _unary(self, index: int, x: Expr, node: Node, rounding: str | None) -> Expr:
        op = node.op
        if op == "gelu":
            mode = argument(node, 1, "approximate", "none")
            return self.pointwise("gelu" if mode == "none" else "gelu_tanh", x, rounding=rounding)
        if op in ("clamp", "hardtanh", "relu6"):
            names = ("min_val", "max_val") if op == "hardtanh" else ("min", "max")
            default = {"relu6": (0.0, 6.0), "hardtanh": (-1.0, 1.0), "clamp": (None, None)}[op]
            for position, fn in ((0, "maximum"), (1, "minimum")):
                bound = (
                    argument(node, position + 1, names[position], default[position])
                    if op != "relu6"
                    else default[position]
                )
                if bound is not None:
                    args = (position + 1, names[position], default[position])
                    x = self.pointwise(
                        fn,
                        x,
                        self._arg(index, *args) if op != "relu6" else bound,
                        rounding=rounding,
                        is_float=node.is_float,
                    )
            return x
        if op in ("softplus", "leaky_relu", "elu"):
            if (len(node.args) > 1 and op != "leaky_relu") or node.kwargs.keys() - {"inplace", "negative_slope"}:
                raise OutsideFamiliesError(f"{op} with other than its default arguments is outside my families")
            if op == "leaky_relu":
                return self.pointwise(op, x, self._arg(index, 1, "negative_slope", 0.01), rounding=rounding)
        elif len(node.args) > 1 and op not in ("relu", "silu", "hardswish", "hardsigmoid", "mish"):
            raise OutsideFamiliesError(f"{op} with a second argument is outside my families")
        if op == "bitwise_not" and node.dtype != "bool":
            raise OutsideFamiliesError("~ of integers is outside my families")
        return self.pointwise(op, x, rounding=rounding, is_float=node.is_float)

    def _reduction(self, x: Expr, node: Node, rounding: str | None) -> Expr:
        axes = reduce_axes(node, x.rank)
        keepdim = bool(argument(node, 2, "keepdim", False))
        value = self.reduce({"amax": "max", "amin": "min"}.get(node.op, node.op), x, axes, keepdim)
        value.is_float = node.is_float
        return self.pointwise("cast", value, rounding=rounding) if rounding else value

    def _softmax(self, x: Expr, node: Node, rounding: str | None) -> Expr:
        axes = (argument(node, 1, "dim", -1) % x.rank,)
        shifted = self.pointwise("sub", x, self.reduce("max", x, axes))
        if node.op == "log_softmax":
            total = self.reduce("sum", self.pointwise("exp", shifted), axes)
            return self.pointwise("sub", shifted, self.pointwise("log", total), rounding=rounding)
        weight = self.pointwise("exp", shifted)
        return self.pointwise("div", weight, self.reduce("sum", weight, axes), rounding=rounding)

    def _norm(self, index: int, x: Expr, node: Node, rounding: str | None) -> Expr:
        axes = tuple(range(x.rank - len(argument(node, 1, "normalized_shape")), x.rank))
        eps_at = 4 if node.op == "layer_norm" else 3
        eps = argument(node, eps_at, "eps", 1e-05 if node.op == "layer_norm" else None)
        if eps is None:
            raise OutsideFamiliesError("rms_norm without eps is outside my families")
        eps_expr = self._arg(index, eps_at, "eps", eps)
        if node.op == "layer_norm":
            x = self.pointwise("sub", x, self.reduce("mean", x, axes))
        variance = self.reduce("mean", self.pointwise("square", x), axes)
        value = self.pointwise("mul", x, self.pointwise("rsqrt", self.pointwise("add", variance, eps_expr)))
        if node.op == "rms_norm" and rounding:
            value = self.pointwise("cast", value, rounding=rounding)
        for position, name, fn in ((2, "weight", "mul"), (3, "bias", "add")):
            if isinstance(argument(node, position, name), Ref) and not (node.op == "rms_norm" and fn == "add"):
                value = self.pointwise(fn, value, self._arg(index, position, name))
        value.rounding = rounding
        return value

    def _group_norm(self, index: int, x: Expr, node: Node, rounding: str | None) -> Expr:
        counts = [argument(program.nodes[index], 1, "num_groups") for program in self.programs]
        text, eps = self.literal(counts), self._arg(index, 4, "eps", 1e-05)
        shapes = tuple(
            (shape[0], groups, shape[1] // groups, *shape[2:]) for shape, groups in zip(x.shapes, counts, strict=True)
        )
        merged, x = x.shapes, self.remap(x, shapes, "split", (1, text))
        axes = tuple(range(2, x.rank))
        mean = self.reduce("mean", x, axes)
        variance = self.reduce("mean", self.pointwise("square", self.pointwise("sub", x, mean)), axes)
        scale = self.pointwise("rsqrt", self.pointwise("add", variance, eps))
        parts = {}
        for position, name in ((2, "weight"), (3, "bias")):
            if isinstance(argument(node, position, name), Ref):
                channels = tuple((*shape[1:3], *(1,) * (x.rank - 3)) for shape in shapes)
                parts[name] = self.remap(self._arg(index, position, name), channels, "view", None)
        if "weight" in parts:
            scale = self.pointwise("mul", scale, parts["weight"])
        shift = self.pointwise("mul", mean, scale)
        shift = self.pointwise("sub", parts["bias"], shift) if "bias" in parts else self.pointwise("neg", shift)
        value = self.pointwise("add", self.pointwise("mul", x, scale), shift, rounding=rounding)
        return self.remap(value, merged, "merge", None)

    def _batch_norm(self, index: int, x: Expr, node: Node, rounding: str | None) -> Expr:
        if argument(node, 5, "training", False) is not False:
            raise OutsideFamiliesError("batch_norm in training is outside my families")
        names = {1: "running_mean", 2: "running_var", 3: "weight", 4: "bias"}
        parts: dict[str, Expr] = {}
        for position, name in names.items():
            if isinstance(argument(node, position, name), Ref):
                part = self._arg(index, position, name)
                shapes = tuple((shape[0],) + (1,) * (x.rank - 2) for shape in part.shapes)
                parts[name] = self.remap(part, shapes, "unsqueeze", list(range(1, x.rank - 1))) if x.rank > 2 else part
        eps = self._arg(index, 7, "eps", 1e-05)
        scale = self.pointwise("rsqrt", self.pointwise("add", parts["running_var"], eps))
        if "weight" in parts:
            scale = self.pointwise("mul", scale, parts["weight"])
        shift = self.pointwise("mul", parts["running_mean"], scale)  # as eager: x * scale + (bias - mean * scale)
        if "bias" in parts:
            value = self.pointwise("add", self.pointwise("mul", x, scale), self.pointwise("sub", parts["bias"], shift))
        else:
            value = self.pointwise("sub", self.pointwise("mul", x, scale), shift)
        value.rounding = rounding
        return value

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
            return [rest[0] % rank]
        if node.op == "getitem":
            return self._slices(index, rank)
        return None

    def _slices(self, index: int, rank: int) -> list[Any]:
        """For each item of the index: None (a new axis), ("int", text), or ("slice", start text, step)."""
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
                if any((part.start or 0) < 0 for part in parts):
                    raise OutsideFamiliesError(
                        "a slice from the end in the middle of the region is outside my families"
                    )
                items.append(("slice", self.literal([part.start or 0 for part in parts]), parts[0].step or 1))
            else:
                items.append(("int", self.literal(list(parts))))
        return items
