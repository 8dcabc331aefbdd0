"""A graph's model.py as a list of nodes with shapes and dtypes, read by AST alone: no torch, nothing executed.

What the expert knows of PyTorch's shape and promotion rules is here; what it does not know becomes a node with the
shape None, and everything that needs such a node stays outside the expert's passes.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import Any

from data.graph import Graph

FLOATS = ("float64", "float32", "float16", "bfloat16")
_FLOAT_RANK = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
_INT_RANK = {"bool": 0, "uint8": 1, "int8": 1, "int16": 2, "int32": 3, "int64": 4}


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
    """Variable -> node, at the end of forward."""


class OutsideFamiliesError(ValueError):
    """The expert cannot read or fuse this; the text says what it met."""


def read_program(graph: Graph) -> Program:
    """Parse a graph. Raises OutsideFamiliesError for statements other than assignments of single names."""
    return _Reader(graph).read()


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.names: dict[str, int] = {}
        self.statements: list[Statement] = []
        self.arguments = graph.arguments
        for argument in graph.arguments:
            spec = graph.specs[argument]
            self.names[argument] = self._add(
                Node("input", (), {}, spec.shape, spec.dtype.removeprefix("torch."), -1, argument)
            )
        module = ast.parse(graph.model_source)
        self.body = next(
            item.body
            for node in module.body
            if isinstance(node, ast.ClassDef)
            for item in node.body
            if isinstance(item, ast.FunctionDef) and item.name == "forward"
        )

    def read(self) -> Program:
        for statement in self.body:
            if isinstance(statement, ast.Return):
                value = statement.value
                items = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
                if not all(isinstance(item, ast.Name) for item in items):
                    raise OutsideFamiliesError("it returns an expression rather than names")
                returns = tuple(item.id for item in items if isinstance(item, ast.Name))
                return Program(self.nodes, self.statements, self.arguments, returns, dict(self.names))
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            self._assign(statement)
        raise OutsideFamiliesError("forward has no return")

    def _assign(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant) and statement.value.value is None:
            return  # `tmp_0 = None` only drops a reference
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            raise OutsideFamiliesError(f"the statement `{ast.unparse(statement)[:60]}` is not a plain assignment")
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            raise OutsideFamiliesError(f"the statement `{ast.unparse(statement)[:60]}` sets more than one name")
        reads = [node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name) and node.id in self.names]
        value = self._value(statement.value)
        if not isinstance(value, Ref):
            value = Ref(self._add(Node("const", (value,), {}, None, None)))
        self.nodes[value.node].name = self.nodes[value.node].name or target.id
        if target.id in self.names:
            raise OutsideFamiliesError(f"the variable {target.id} is set twice")
        self.names[target.id] = value.node
        text, unique = ast.unparse(statement), tuple(dict.fromkeys(reads))
        self.statements.append(Statement(text, unique, target.id, value.node))

    def _add(self, node: Node) -> int:
        if node.op != "input":
            node.statement = len(self.statements)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _op(self, op: str, *args: Any, **kwargs: Any) -> Ref:
        node = Node(op, args, kwargs)
        infer(node, self.nodes)
        return Ref(self._add(node))

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            if node.id in self.names:
                return Ref(self.names[node.id])
            if node.id in ("inf", "nan"):
                return float(node.id)
            if node.id == "Ellipsis":
                return Ellipsis
            raise OutsideFamiliesError(f"the name {node.id!r} is not set")
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self._value(item) for item in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(None if part is None else self._value(part) for part in (node.lower, node.upper, node.step)))
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand)
            if not isinstance(value, Ref):
                return -value if isinstance(node.op, ast.USub) else value
            return self._op({"USub": "neg", "Invert": "bitwise_not"}.get(type(node.op).__name__, "?"), value)
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left), self._value(node.right)
            return self._op(_OPERATORS.get(type(node.op).__name__, "?"), left, right)
        if isinstance(node, ast.Compare):
            return self._op(type(node.ops[0]).__name__.lower(), self._value(node.left), self._value(node.comparators[0]))
        if isinstance(node, ast.Subscript):
            return self._op("getitem", self._value(node.value), self._value(node.slice))
        if isinstance(node, ast.Call):
            return self._call(node)
        raise OutsideFamiliesError(f"the expression `{ast.unparse(node)[:60]}` is new to me")

    def _attribute(self, node: ast.Attribute) -> Any:
        text = ast.unparse(node)
        if text.startswith("torch."):
            return Dtype(text.removeprefix("torch."))
        raise OutsideFamiliesError(f"the attribute `{text[:60]}` is new to me")

    def _call(self, node: ast.Call) -> Any:
        kwargs = {keyword.arg: self._value(keyword.value) for keyword in node.keywords if keyword.arg}
        args = [self._value(arg) for arg in node.args]
        if isinstance(node.func, ast.Name):
            if node.func.id == "float":
                return float(args[0])
            if node.func.id == "slice":
                return slice(*args)
            return Dtype("device")  # device(type=..., index=...)
        if not isinstance(node.func, ast.Attribute):
            raise OutsideFamiliesError(f"the call `{ast.unparse(node)[:60]}` is new to me")
        if ast.unparse(node.func).startswith("torch."):
            if node.func.attr == "device":
                return Dtype("device")
        else:
            args.insert(0, self._value(node.func.value))
        return self._op(ALIASES.get(node.func.attr, node.func.attr), *args, **kwargs)


_OPERATORS = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "Pow": "pow", "MatMult": "matmul",
    "BitAnd": "bitwise_and", "BitOr": "bitwise_or",
}
ALIASES = {
    "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg", "view_as": "?",
    "logical_not": "bitwise_not", "logical_and": "bitwise_and", "logical_or": "bitwise_or", "greater": "gt", "less": "lt",
    "clip": "clamp", "clamp_min": "clamp", "scaled_dot_product_attention": "attention",
}


def promote(nodes: list[Node], operands: list[Any]) -> str | None:
    """The dtype of an elementwise result: category first, then tensors with dimensions before those without."""
    best: dict[int, str] = {}
    category = -1
    for operand in operands:
        if isinstance(operand, Ref):
            node = nodes[operand.node]
            if node.dtype is None or node.shape is None:
                return None
            dtype, priority = node.dtype, 2 if node.shape else 1
        else:
            dtype, priority = {bool: "bool", int: "int64"}.get(type(operand), "float32"), 0
        kind = 2 if dtype in FLOATS else 0 if dtype == "bool" else 1
        if kind > category:
            category, best = kind, {priority: dtype}
        elif kind == category:
            best[priority] = join(best[priority], dtype) if priority in best else dtype
    return best[max(best)] if best else None


def join(first: str, second: str) -> str:
    if {first, second} == {"float16", "bfloat16"}:
        return "float32"
    rank = _FLOAT_RANK if first in _FLOAT_RANK else _INT_RANK
    return max(first, second, key=lambda name: rank[name])


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    width = max(map(len, shapes))
    padded = [(1,) * (width - len(shape)) + shape for shape in shapes]
    result = tuple(next((d for d in dims if d != 1), 1) for dims in zip(*padded, strict=True))
    if any(d not in (1, r) for shape in padded for d, r in zip(shape, result, strict=True)):
        raise OutsideFamiliesError(f"shapes {shapes} do not broadcast")
    return result


BINARY = {"add", "sub", "mul", "div", "pow", "maximum", "minimum", "bitwise_and", "bitwise_or"}
COMPARE = {"eq", "ne", "noteq", "lt", "lte", "le", "gt", "gte", "ge"}
UNARY = {
    "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "rsqrt", "sqrt", "neg", "abs", "clamp", "square", "log", "erf",
    "reciprocal", "softplus", "hardtanh", "relu6", "hardswish", "hardsigmoid", "leaky_relu", "elu", "sin", "cos", "mish",
    "bitwise_not", "logsigmoid",
}
CASTS = {"to", "float", "half", "bfloat16", "type_as", "type", "int", "long", "bool"}
SAME = {"dropout", "contiguous", "clone", "detach"}
VIEWS = {"view", "reshape", "permute", "transpose", "getitem", "unsqueeze", "squeeze", "expand", "flatten", "expand_as"}
REDUCE = {"sum", "mean", "amax", "amin", "var"}
ROWWISE = {"softmax", "layer_norm", "rms_norm", "batch_norm", "log_softmax"}
OTHER = {"roll", "cat", "embedding", "where", "masked_fill"}


def infer(node: Node, nodes: list[Node]) -> None:
    """Set shape and dtype of a node from its operands; leave None where the operation is not known."""
    refs = [nodes[arg.node] for arg in node.args if isinstance(arg, Ref)]
    if any(ref.shape is None for ref in refs):
        return
    op, first = node.op, refs[0] if refs else None
    if op in BINARY or op in COMPARE:
        node.shape = broadcast(*(ref.shape for ref in refs if ref.shape is not None))
        node.dtype = "bool" if op in COMPARE else promote(nodes, list(node.args))
        if op == "div" and node.dtype not in FLOATS:
            node.dtype = "float32"
        if node.kwargs:
            node.shape = None  # alpha=, rounding_mode=: not among the families
    elif op == "where" and len(node.args) == 3:
        node.shape = broadcast(*(ref.shape for ref in refs if ref.shape is not None))
        node.dtype = promote(nodes, list(node.args[1:]))
    elif op == "masked_fill" and first is not None:
        node.shape, node.dtype = broadcast(first.shape or (), refs[1].shape or ()), first.dtype
    elif op == "cat":
        _infer_cat(node, nodes)
    elif first is None:
        return
    elif op in UNARY or op in ROWWISE:
        node.shape, node.dtype = first.shape, first.dtype
        wanted = node.kwargs.get("dtype")
        if op in ("softmax", "log_softmax") and isinstance(wanted, Dtype):
            node.dtype = wanted.name
    elif op in SAME:
        node.shape, node.dtype = first.shape, first.dtype
        if op == "dropout" and (node.kwargs.get("training", argument(node, 2, "training", True)) is not False):
            node.shape = None
    elif op in CASTS:
        node.shape = first.shape
        node.dtype = _cast_dtype(node, refs)
    elif op in VIEWS:
        node.dtype = first.dtype
        node.shape = view_shape(node, nodes)
    elif op == "roll":
        node.shape, node.dtype = first.shape, first.dtype
    elif op in REDUCE:
        _infer_reduce(node, first)
    elif op == "embedding" and len(refs) == 2:
        node.shape, node.dtype = (*(refs[0].shape or ()), (refs[1].shape or (0,))[-1]), refs[1].dtype
    else:
        _infer_primitive(node, refs)


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """An argument by position or name."""
    if name in node.kwargs:
        return node.kwargs[name]
    return node.args[position] if position < len(node.args) else default


def _cast_dtype(node: Node, refs: list[Node]) -> str | None:
    fixed = {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64", "bool": "bool"}
    if node.op in fixed:
        return fixed[node.op]
    if len(refs) == 2:
        return refs[1].dtype
    for value in (*node.args[1:], *node.kwargs.values()):
        if isinstance(value, Dtype) and value.name != "device":
            return value.name
    return refs[0].dtype


def _infer_cat(node: Node, nodes: list[Node]) -> None:
    parts = [nodes[ref.node] for ref in node.args[0]]
    if any(part.shape is None for part in parts):
        return
    shapes = [list(part.shape or ()) for part in parts]
    axis = argument(node, 1, "dim", 0) % len(shapes[0])
    shapes[0][axis] = sum(shape[axis] for shape in shapes)
    node.shape, node.dtype = tuple(shapes[0]), promote(nodes, list(node.args[0]))


def reduce_axes(node: Node, rank: int) -> tuple[int, ...]:
    axes = argument(node, 1, "dim", None)
    axes = argument(node, 1, "axis", axes) if axes is None else axes
    if axes is None or axes == ():
        return tuple(range(rank))
    return tuple(sorted(axis % rank for axis in (axes if isinstance(axes, tuple) else (axes,))))


def _infer_reduce(node: Node, first: Node) -> None:
    shape = first.shape or ()
    axes = reduce_axes(node, len(shape))
    keep = argument(node, 2, "keepdim", False)
    node.shape = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
    wanted = node.kwargs.get("dtype")
    node.dtype = wanted.name if isinstance(wanted, Dtype) else first.dtype
    if node.op == "sum" and node.dtype in _INT_RANK:
        node.dtype = "int64"
    if node.op == "var":
        node.shape = None


def _infer_primitive(node: Node, refs: list[Node]) -> None:
    """Vendor primitives: only their shapes matter, for what follows them."""
    shapes = [ref.shape or () for ref in refs]
    node.dtype = refs[0].dtype
    if node.op == "linear" and len(shapes) >= 2:
        node.shape = (*shapes[0][:-1], shapes[1][0])
    elif node.op in ("matmul", "bmm") and len(shapes) == 2 and min(map(len, shapes)) >= 2:
        node.shape = (*broadcast(shapes[0][:-2], shapes[1][:-2]), shapes[0][-2], shapes[1][-1])
    elif node.op == "attention":
        node.shape = (*shapes[0][:-1], shapes[2][-1])
    elif node.op == "conv2d" and len(shapes) >= 2 and len(shapes[0]) == 4:
        stride, padding, dilation = (
            argument(node, position, name, default)
            for position, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1))
        )
        if padding == "same":
            node.shape = (shapes[0][0], shapes[1][0], *shapes[0][2:])
        elif not isinstance(padding, str):
            spatial = []
            for axis in (0, 1):
                s, p, d = (v[axis % len(v)] if isinstance(v, tuple) else v for v in (stride, padding, dilation))
                spatial.append((shapes[0][2 + axis] + 2 * p - d * (shapes[1][2 + axis] - 1) - 1) // s + 1)
            node.shape = (shapes[0][0], shapes[1][0], *spatial)


def view_shape(node: Node, nodes: list[Node]) -> tuple[int, ...] | None:
    """The shape after a view of the first operand; None where the expert does not know the view."""
    source, op = nodes[node.args[0].node].shape or (), node.op
    rest = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
    rank = len(source)
    if any(isinstance(item, Ref | Dtype) for item in rest) and op not in ("expand_as",):
        return None
    if op in ("view", "reshape"):
        sizes = list(node.kwargs.get("shape", rest))
        if -1 in sizes:
            known = math.prod(size for size in sizes if size != -1)
            sizes[sizes.index(-1)] = math.prod(source) // max(known, 1)
        return tuple(sizes)
    if op == "permute":
        return tuple(source[axis] for axis in rest)
    if op == "transpose":
        order = list(source)
        order[rest[0]], order[rest[1]] = order[rest[1]], order[rest[0]]
        return tuple(order)
    if op == "unsqueeze":
        axis = argument(node, 1, "dim") % (rank + 1)
        return (*source[:axis], 1, *source[axis:])
    if op == "squeeze":
        if len(rest) != 1 or source[rest[0]] != 1:
            return None
        return tuple(d for i, d in enumerate(source) if i != rest[0] % rank)
    if op == "expand":
        sizes = list(rest)
        offset = len(sizes) - rank
        return tuple(source[i - offset] if size == -1 else size for i, size in enumerate(sizes))
    if op == "expand_as":
        return nodes[node.args[1].node].shape
    if op == "flatten":
        start, end = argument(node, 1, "start_dim", 0) % rank, argument(node, 2, "end_dim", -1) % rank
        return (*source[:start], math.prod(source[start : end + 1]), *source[end + 1 :])
    return _getitem_shape(source, node.args[1])


def _getitem_shape(source: tuple[int, ...], index: Any) -> tuple[int, ...] | None:
    items = list(index) if isinstance(index, tuple) else [index]
    if any(not (item is None or item is Ellipsis or type(item) is int or isinstance(item, slice)) for item in items):
        return None
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = len(source) - sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * missing
    shape, axis = [], 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if isinstance(item, slice):
            shape.append(len(range(*item.indices(source[axis]))))
        axis += 1
    return (*shape, *source[axis:])
