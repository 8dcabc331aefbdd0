"""What an expression does to storage: which names it writes in place, and whose storage its value may share. No torch.

Both answers err on the side of more: an operator that is not known to make a new tensor is taken to return a view of
its operands, because a cut across a mutation that was overlooked computes something else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from data.allowed_calls import ARITHMETIC_DUNDERS, FUNCTIONS, METHODS, TENSOR_ATTRIBUTES
from data.device_mapping import dotted_name


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHARES_FIRST = _words(
    """
    adjoint alias as_strided as_tensor asarray bfloat16 bool broadcast_to byte cdouble cfloat channel_shuffle char chunk
    conj conj_physical contiguous cpu cuda detach diagonal double dsplit expand expand_as flatten float getitem half
    hsplit imag int long moveaxis movedim narrow permute positive ravel real requires_grad reshape reshape_as
    resolve_conj resolve_neg select short slice split split_with_sizes squeeze sum_to_size swapaxes swapdims t
    tensor_split to transpose type type_as unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze view view_as
    view_as_complex view_as_real vsplit add_batch_dim remove_batch_dim dropout dropout1d dropout2d dropout3d
    alpha_dropout feature_dropout feature_alpha_dropout
    """
)
"""Operators whose result may be, or look into, their first operand. A dropout that is off returns its input."""

SHARES_ANY = _words(
    "atleast_1d atleast_2d atleast_3d broadcast_tensors cartesian_prod chain_matmul einsum meshgrid dequantize"
)
"""Operators whose result may look into any of their operands."""

METADATA = _words(
    """
    size dim ndimension numel nelement stride storage_offset element_size get_device is_contiguous is_floating_point
    is_complex is_signed is_same_size is_conj is_inference has_names result_type promote_types can_cast broadcast_shapes
    finfo iinfo len zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty
    """
)
"""Operators that look at shape, dtype or device of a tensor and never at its content."""

_KNOWN = frozenset(name.strip("_") for names in FUNCTIONS.values() for name in names)
_KNOWN |= frozenset(name.strip("_") for name in METHODS | ARITHMETIC_DUNDERS)
_VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
_NO_CONTENT_ATTRIBUTES = TENSOR_ATTRIBUTES - _VIEW_ATTRIBUTES
_KEEPS_CONTENT = frozenset({"requires_grad_"})
_IN_PLACE_DUNDERS = _words(
    "__iadd__ __iand__ __idiv__ __ifloordiv__ __ilshift__ __imul__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__ "
    "__ixor__ __imod__ __setitem__"
)
_INPLACE_POSITION = {
    "relu": 1, "relu6": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "selu": 1, "elu": 2, "celu": 2,
    "leaky_relu": 2, "threshold": 3, "hardtanh": 3, "dropout": 3, "dropout1d": 3, "dropout2d": 3, "dropout3d": 3,
    "alpha_dropout": 3, "feature_alpha_dropout": 3, "rrelu": 4,
}  # fmt: skip
"""Where functions of torch.nn.functional take `inplace`."""
_RUNNING_STATISTICS = {
    # function -> (position of `training`, its default, positions and keywords of the statistics)
    "torch.nn.functional.batch_norm": (5, False, (1, 2)),
    "torch.batch_norm": (5, True, (3, 4)),
    "torch.nn.functional.instance_norm": (5, True, (1, 2)),
    "torch.instance_norm": (5, True, (3, 4)),
}  # fmt: skip
_TRAINING_KEYWORDS = ("training", "use_input_stats")
_STATISTICS_KEYWORDS = ("running_mean", "running_var")
_MAX_NORM_POSITION = 3


@dataclass
class Effects:
    """What one statement does to the storage of names."""

    writes: dict[str, None] = field(default_factory=dict)
    """Names whose storage is written in place, in order."""
    shares: dict[str, None] = field(default_factory=dict)
    """Names whose storage the value of the statement may share, in order."""


def expression_effects(node: ast.expr, resolve: Callable[[str], str | None]) -> Effects:
    """Effects of evaluating an expression; resolve: name in the source -> the value's name, None if it is no value."""
    walker = _Walker(resolve)
    shares = walker.visit(node)
    return Effects(walker.writes, dict.fromkeys(shares))


class _Walker:
    """visit() returns the names whose storage the expression's value may share, and collects what it writes."""

    def __init__(self, resolve: Callable[[str], str | None]) -> None:
        self.resolve = resolve
        self.writes: dict[str, None] = {}

    def visit(self, node: ast.expr) -> list[str]:
        match node:
            case ast.Name(id=name):
                value = self.resolve(name)
                return [value] if value is not None else []
            case ast.Call():
                return self.call(node)
            case ast.Attribute(value=value, attr=attribute):
                shares = self.visit(value)
                return [] if attribute in _NO_CONTENT_ATTRIBUTES else shares
            case ast.Subscript(value=value, slice=index):
                shares = self.visit(value)
                self.visit(index)
                return shares
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
                return [name for part in parts for name in self.visit(part)]
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.visit(operand)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.visit(child)
                return []

    def call(self, node: ast.Call) -> list[str]:
        if not isinstance(node.func, ast.Attribute):
            return []  # device(...), slice(...), float("inf")
        dotted = dotted_name(node.func)
        operands = [*node.args] if dotted else [node.func.value, *node.args]
        shares = [self.visit(operand) for operand in operands]
        keywords = {keyword.arg or "": self.visit(keyword.value) for keyword in node.keywords}
        name = called_name(node.func)
        first = shares[0] if shares else keywords.get("input", [])
        written = list(first) if _writes_first(node, name, dotted) else []
        written += keywords.get("out", [])
        result = list(written)
        written += self.hidden_state(node, dotted, shares, keywords)
        self.writes.update(dict.fromkeys(written))
        bare = name.strip("_")
        if bare in SHARES_FIRST:
            result += first
        elif bare in SHARES_ANY or bare not in _KNOWN:
            result += [name for part in (*shares, *keywords.values()) for name in part]
        return list(dict.fromkeys(result))

    def hidden_state(
        self, node: ast.Call, dotted: str, shares: list[list[str]], keywords: dict[str, list[str]]
    ) -> list[str]:
        """Running statistics in training mode, and a table that embedding renormalises."""
        if dotted in _RUNNING_STATISTICS:
            position, default, statistics = _RUNNING_STATISTICS[dotted]
            training = _argument(node, position, *_TRAINING_KEYWORDS)
            if default if training is None else not _is_false(training):
                found = [shares[index] for index in statistics if index < len(shares)]
                return [
                    name for part in [*found, *(keywords.get(key, []) for key in _STATISTICS_KEYWORDS)] for name in part
                ]
        if dotted.rpartition(".")[2] in ("embedding", "embedding_bag") and "functional" in dotted:
            limit = _argument(node, _MAX_NORM_POSITION, "max_norm")
            if limit is not None and not _is_false(limit):
                return shares[1] if len(shares) > 1 else keywords.get("weight", [])
        return []


def called_name(func: ast.Attribute) -> str:
    """The name a call is spelled with, underscores kept: "relu_", "index" for torch.ops.aten.index.Tensor."""
    path = dotted_name(func)
    if path.startswith("torch.ops.aten.") and path.count(".") == 4:
        return path.split(".")[3]
    return func.attr


def _writes_first(node: ast.Call, name: str, dotted: str) -> bool:
    if name in _IN_PLACE_DUNDERS:
        return True
    if name.endswith("_") and not name.endswith("__"):
        return name not in _KEEPS_CONTENT
    position = _INPLACE_POSITION.get(name) if dotted.startswith("torch.nn.functional.") else None
    flag = _argument(node, position, "inplace")
    return flag is not None and not _is_false(flag)


def _argument(node: ast.Call, position: int | None, *names: str) -> ast.expr | None:
    if position is not None and position < len(node.args):
        return node.args[position]
    return next((keyword.value for keyword in node.keywords if keyword.arg in names), None)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
