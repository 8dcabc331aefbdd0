"""A graph as a list of nodes with shapes and dtypes, and which operators the expert knows. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FLOATS = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Ref:
    """An operand that is another node."""

    node: int


@dataclass(frozen=True)
class Dtype:
    """The literal torch.<name>."""

    name: str


@dataclass
class Node:
    """One operation. args and kwargs hold Refs, literals, and lists of them."""

    op: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    statement: int = -1
    """Index of the statement in forward that made it; -1 for an input."""
    name: str = ""
    """The variable that holds it, if one does."""

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass
class Statement:
    """One assignment of forward: its text, the variables that it reads and the one that it sets."""

    text: str
    reads: tuple[str, ...]
    sets: str
    """Key of the value: the variable's name; "name@1" for the second value of a variable, and so on."""
    node: int
    """What it sets the variable to."""


@dataclass
class Program:
    """A graph as nodes in order of execution."""

    nodes: list[Node]
    statements: list[Statement]
    arguments: tuple[str, ...]
    returns: tuple[str, ...]
    variables: dict[str, int]
    """Key of a value of a variable -> node."""

    def key_of(self, node: int, like: str) -> str:
        """The key of a node's value; of several the last for `like` a later value of its variable, else the first."""
        keys = [key for key, other in self.variables.items() if other == node]
        return keys[-1] if "@" in like else keys[0]


class OutsideFamiliesError(ValueError):
    """The expert cannot read or fuse this; the text says what it met."""


BINARY = {
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "bitwise_and",
    "bitwise_or",
    "floor_divide",
    "remainder",
}
COMPARE = {"eq", "ne", "noteq", "lt", "lte", "le", "gt", "gte", "ge"}
UNARY = {
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "exp",
    "rsqrt",
    "sqrt",
    "neg",
    "abs",
    "clamp",
    "square",
    "log",
    "erf",
    "reciprocal",
    "softplus",
    "hardtanh",
    "relu6",
    "hardswish",
    "hardsigmoid",
    "leaky_relu",
    "elu",
    "sin",
    "cos",
    "mish",
    "bitwise_not",
    "logsigmoid",
    "log1p",
    "expm1",
    "log2",
    "floor",
    "ceil",
    "sign",
}
CASTS = {"to", "float", "half", "bfloat16", "type_as", "type", "int", "long", "bool"}
SAME = {"dropout", "contiguous", "clone", "detach"}
VIEWS = {
    "view",
    "reshape",
    "permute",
    "transpose",
    "getitem",
    "unsqueeze",
    "squeeze",
    "expand",
    "flatten",
    "expand_as",
    "select",
    "narrow",
}
REDUCE = {"sum", "mean", "amax", "amin", "linalg_vector_norm", "norm"}
ROWWISE = {"softmax", "layer_norm", "rms_norm", "batch_norm", "log_softmax", "group_norm"}
FACTORIES = {"arange", "zeros", "ones", "full", "empty"}
LIKE_FACTORIES = {"zeros_like", "ones_like", "full_like"}
POOLS = {"avg_pool2d", "max_pool2d", "adaptive_avg_pool2d"}
OTHER = {
    "roll",
    "cat",
    "stack",
    "embedding",
    "index_select",
    "gather",
    "where",
    "masked_fill",
    "repeat",
    "tile",
    "repeat_interleave",
    "pad",
    "cumsum",
    "normalize",
}
FUSIBLE = (
    BINARY
    | COMPARE
    | UNARY
    | CASTS
    | SAME
    | VIEWS
    | REDUCE
    | ROWWISE
    | LIKE_FACTORIES
    | POOLS
    | OTHER
    | (FACTORIES - {"empty"})
)
"""What the expert may fuse; the rest stays eager."""
VENDOR = {"linear", "matmul", "bmm", "attention", "conv2d", "conv1d", "conv3d", "addmm", "baddbmm", "einsum"}
"""Vendor primitives: left alone on purpose."""


def shown(key: str) -> str:
    """The variable that a key is a value of."""
    return key.split("@")[0]


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """An argument by position or name."""
    if name in node.kwargs:
        return node.kwargs[name]
    return node.args[position] if position < len(node.args) else default
