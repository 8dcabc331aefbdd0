"""Lowering of reductions and of what is made of them: softmax, norms, pooling, running sums."""

from __future__ import annotations

from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_indexing import IndexLowering
from trajectories.policies.expert_infer import keepdim
from trajectories.policies.expert_infer_moves import pool_window
from trajectories.policies.expert_ir import Node, OutsideFamiliesError, Ref, argument
from trajectories.policies.expert_shapes import reduce_axes

MAX_WINDOW = 64
"""Elements of a pooling window; a larger one is a reduction, which wants a kernel of its own."""


class NormLowering(IndexLowering):
    """Lowering with reductions, softmax, norms and pooling."""

    def _reduction(self, x: Expr, node: Node, rounding: str | None) -> Expr:
        axes = reduce_axes(node, x.rank)
        if node.op in ("linalg_vector_norm", "norm"):
            total = self.reduce("sum", self.pointwise("square", x), axes, keepdim(node))
            return self.pointwise("sqrt", total, rounding=rounding)
        if node.is_float and not x.is_float:
            x = self.pointwise("float", x)
        value = self.reduce({"amax": "max", "amin": "min"}.get(node.op, node.op), x, axes, keepdim(node))
        value.is_float = node.is_float
        return self.pointwise("cast", value, rounding=rounding) if rounding else value

    def _running_sum(self, index: int, x: Expr, node: Node) -> Expr:
        if node.dtype != "int64":
            raise OutsideFamiliesError("a running sum of floats, whose rounding eager orders, is outside my families")
        axes = (argument(node, 1, "dim") % x.rank,)
        return Expr("scan", self.shapes(index), (x,), "cumsum", data=(axes, True), is_float=False)

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

    def _pool(self, index: int, x: Expr, node: Node, rounding: str | None) -> Expr:
        """data: kernel, stride, padding, dilation, whether padding counts in a mean, ceil_mode, is_adaptive."""
        shapes = self.shapes(index)
        if node.op == "adaptive_avg_pool2d" and all(shape[-2:] == (1, 1) for shape in shapes):
            value = self.reduce("mean", x, (x.rank - 2, x.rank - 1))
            return self.pointwise("cast", value, rounding=rounding) if rounding else value
        windows = set()
        for program in self.programs:
            other = program.nodes[index]
            if node.op == "adaptive_avg_pool2d":
                source = program.nodes[other.args[0].node].shape or ()
                sizes = tuple(h // o for h, o in zip(source[-2:], (other.shape or ())[-2:], strict=True))
                windows.add((sizes, sizes, (0, 0), (1, 1), False))
            else:
                windows.add(pool_window(other))
        if len(windows) > 1:
            raise OutsideFamiliesError("a pooling whose window differs from graph to graph is outside my families")
        kernel, stride, padding, dilation, ceil_mode = windows.pop()
        counts_padding = node.op == "avg_pool2d" and bool(argument(node, 5, "count_include_pad", True))
        if node.op == "avg_pool2d" and (ceil_mode or argument(node, 6, "divisor_override") is not None):
            raise OutsideFamiliesError("avg_pool2d with ceil_mode or a divisor is outside my families")
        if not any(padding):
            counts_padding = True
        if kernel[0] * kernel[1] > MAX_WINDOW:
            raise OutsideFamiliesError(f"a pooling window of more than {MAX_WINDOW} elements is outside my families")
        is_adaptive = node.op == "adaptive_avg_pool2d"
        data = (kernel, stride, padding, dilation, counts_padding, ceil_mode, is_adaptive)
        fn = "max" if node.op == "max_pool2d" else "mean"
        value = Expr("window", shapes, (x,), fn, data=data, is_float=node.is_float)
        return self.pointwise("cast", value, rounding=rounding) if rounding else value

    def _normalized(self, index: int, x: Expr, node: Node, rounding: str | None) -> Expr:
        """F.normalize: x / max(norm, eps), each step rounded."""
        if argument(node, 1, "p", 2.0) != 2:
            raise OutsideFamiliesError("normalize with another norm is outside my families")
        axes = (argument(node, 2, "dim", 1) % x.rank,)
        total = self.reduce("sum", self.pointwise("square", x), axes)
        norm = self.pointwise("sqrt", total, rounding=rounding)
        norm = self.pointwise("maximum", norm, self._arg(index, 3, "eps", 1e-12), rounding=rounding)
        return self.pointwise("div", x, norm, rounding=rounding)

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
                part = self.remap(self._arg(index, position, name), tuple(s[1:3] for s in shapes), "split", (0, text))
                channels = tuple((*shape[1:3], *(1,) * (x.rank - 3)) for shape in shapes)
                parts[name] = self.remap(part, channels, "unsqueeze", list(range(2, x.rank - 1)))
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
        if self.indexes_in_kernel:  # as eager on a GPU
            value = self.pointwise("mul", self.pointwise("sub", x, parts["running_mean"]), scale)
            value = self.pointwise("add", value, parts["bias"]) if "bias" in parts else value
            value.rounding = rounding
            return value
        shift = self.pointwise("mul", parts["running_mean"], scale)  # on a CPU: x * scale + (bias - mean * scale)
        if "bias" in parts:
            value = self.pointwise("add", self.pointwise("mul", x, scale), self.pointwise("sub", parts["bias"], shift))
        else:
            value = self.pointwise("sub", self.pointwise("mul", x, scale), shift)
        value.rounding = rounding
        return value
