"""What each PyTorch operator of the expert's families computes, as scalar expressions (see expert_lower.py)."""

from __future__ import annotations

from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_indexing import INDEXING
from trajectories.policies.expert_ir import (
    BINARY,
    CASTS,
    COMPARE,
    FACTORIES,
    FLOATS,
    LIKE_FACTORIES,
    POOLS,
    REDUCE,
    SAME,
    UNARY,
    VIEWS,
    Node,
    OutsideFamiliesError,
    argument,
)
from trajectories.policies.expert_norms import NormLowering

_COMPARE_SIGNS = {"noteq": "ne", "lte": "le", "gte": "ge"}
_INTEGER_CASTS = {"int64": "int", "int32": "int32"}
_BOOLEAN = {"add": "bitwise_or", "mul": "bitwise_and"}


class OperatorLowering(NormLowering):
    """Lowering with the operators' meanings."""

    def _lower(self, index: int) -> Expr:
        node = self.node(index)
        op = node.op
        rounding = self.rounding(self.dtypes(index))
        if op in FACTORIES | LIKE_FACTORIES:
            return self._constant(index)
        if op in SAME:
            return self.expr(node.args[0].node)
        if op in CASTS:
            return self._cast(self.expr(node.args[0].node), node, rounding)
        if op in BINARY | COMPARE:
            first, second = (self._arg(index, position) for position in (0, 1))
            return self._binary(_COMPARE_SIGNS.get(op, op), first, second, node, rounding)
        if op in VIEWS:
            x = self.expr(node.args[0].node)
            if x.shapes == self.shapes(index) and op in ("squeeze", "view", "reshape", "expand", "flatten"):
                return x
            fn = "getitem" if op in ("select", "narrow") else op
            return self.remap(x, self.shapes(index), fn, self._view_data(index))
        if op == "where":
            args = [self._arg(index, position) for position in range(3)]
            return self.pointwise("where", *args, rounding=rounding, is_float=node.is_float)
        if op == "masked_fill":
            x, mask = (self._arg(index, position) for position in (0, 1))
            value = self._arg(index, 2, "value")
            return self.pointwise("where", mask, value, x, rounding=rounding, is_float=node.is_float)
        if op in INDEXING:
            return self._indexed(index)
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
        if op == "normalize":
            return self._normalized(index, x, node, rounding)
        if op == "cumsum":
            return self._running_sum(index, x, node)
        if op in POOLS:
            return self._pool(index, x, node, rounding)
        raise OutsideFamiliesError(f"{op} is outside my families")

    def _cast(self, x: Expr, node: Node, rounding: str | None) -> Expr:
        if node.dtype in FLOATS:
            if rounding is None and x.is_float:
                return x
            return self.pointwise("cast" if x.is_float else "float", x, rounding=rounding)
        if node.dtype == "bool":
            return self.pointwise("truth", x, is_float=False)
        if node.dtype not in _INTEGER_CASTS:
            raise OutsideFamiliesError(f"a cast to {node.dtype} is outside my families")
        return self.pointwise(_INTEGER_CASTS[node.dtype], x, is_float=False)

    def _binary(self, op: str, first: Expr, second: Expr, node: Node, rounding: str | None) -> Expr:
        is_float = node.is_float
        if op == "pow":
            return self._power(first, second, rounding)
        if node.dtype == "bool" and op in _BOOLEAN:
            op = _BOOLEAN[op]
        elif node.dtype == "bool" and op not in COMPARE | {"bitwise_and", "bitwise_or"}:
            raise OutsideFamiliesError(f"{op} of booleans is outside my families")
        mode = node.kwargs.get("rounding_mode")
        if op == "floor_divide" or mode is not None or op == "remainder":
            if is_float:
                raise OutsideFamiliesError("a division of floats that rounds to integers is outside my families")
            op = "trunc_divide" if mode == "trunc" else "remainder" if op == "remainder" else "floor_divide"
        if op in ("bitwise_and", "bitwise_or") and node.dtype != "bool":
            raise OutsideFamiliesError(f"{op} of integers is outside my families")
        return self.pointwise(op, first, second, rounding=rounding, is_float=is_float)

    def _power(self, base: Expr, exponent: Expr, rounding: str | None) -> Expr:
        if exponent.kind == "literal":
            known = {"2": "square", "2.0": "square", "0.5": "sqrt", "-0.5": "rsqrt", "-1": "reciprocal"}
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
