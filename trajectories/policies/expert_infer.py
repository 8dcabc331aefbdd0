"""Shape and dtype of one operation's result, by PyTorch's rules.

What is not known keeps the shape None, and everything that needs such a node stays outside the expert's passes.
"""

from __future__ import annotations

from trajectories.policies.expert_infer_moves import (
    infer_enlarged,
    infer_factory,
    infer_gather,
    infer_joined,
    infer_pool,
)
from trajectories.policies.expert_ir import (
    BINARY,
    CASTS,
    COMPARE,
    FACTORIES,
    FLOATS,
    LIKE_FACTORIES,
    POOLS,
    REDUCE,
    ROWWISE,
    SAME,
    UNARY,
    VIEWS,
    Dtype,
    Node,
    Ref,
    argument,
)
from trajectories.policies.expert_shapes import broadcast, is_integer, promote, reduce_axes, reduced_shape, view_shape

_CAST_DTYPES = {
    "float": "float32",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
}


def infer(node: Node, nodes: list[Node]) -> None:
    """Set shape and dtype of a node from its operands; leave None where the operation is not known."""
    refs = [nodes[arg.node] for arg in node.args if isinstance(arg, Ref)]
    if any(ref.shape is None for ref in refs):
        return
    op, first = node.op, refs[0] if refs else None
    if op in BINARY | COMPARE and first is not None:
        _infer_elementwise(node, nodes, refs)
    elif op == "where" and len(node.args) == 3:
        node.shape = broadcast(*(ref.shape for ref in refs if ref.shape is not None))
        node.dtype = promote(nodes, list(node.args[1:]))
    elif op in ("cat", "stack"):
        infer_joined(node, nodes)
    elif op in FACTORIES:
        infer_factory(node)
    elif first is None or first.shape is None:
        return
    elif op == "masked_fill":
        node.shape, node.dtype = broadcast(first.shape, refs[1].shape or ()), first.dtype
    elif op in LIKE_FACTORIES:
        wanted = node.kwargs.get("dtype")
        node.shape, node.dtype = first.shape, wanted.name if isinstance(wanted, Dtype) else first.dtype
    elif op in UNARY | ROWWISE | {"roll", "normalize"}:
        node.shape, node.dtype = first.shape, first.dtype
        wanted = node.kwargs.get("dtype")
        if op in ("softmax", "log_softmax") and isinstance(wanted, Dtype):
            node.dtype = wanted.name
    elif op in SAME:
        node.shape, node.dtype = first.shape, first.dtype
        if op == "dropout" and (node.kwargs.get("training", argument(node, 2, "training", True)) is not False):
            node.shape = None
    elif op in CASTS:
        node.shape, node.dtype = first.shape, _cast_dtype(node, refs)
    elif op in VIEWS:
        node.shape, node.dtype = view_shape(node, nodes), first.dtype
    elif op in REDUCE:
        _infer_reduce(node, first)
    elif op in POOLS:
        infer_pool(node, first.shape, first.dtype)
    elif op == "cumsum":
        node.shape, node.dtype = first.shape, "int64" if is_integer(first.dtype) else first.dtype
    elif op in ("embedding", "index_select", "gather"):
        infer_gather(node, refs, nodes)
    elif op in ("repeat", "tile", "repeat_interleave", "pad"):
        infer_enlarged(node, first)
    else:
        _infer_primitive(node, refs)


def _infer_elementwise(node: Node, nodes: list[Node], refs: list[Node]) -> None:
    node.shape = broadcast(*(ref.shape for ref in refs if ref.shape is not None))
    node.dtype = "bool" if node.op in COMPARE else promote(nodes, list(node.args))
    mode = node.kwargs.get("rounding_mode")
    if node.op == "div" and mode is None and node.dtype not in FLOATS:
        node.dtype = "float32"
    if node.kwargs.keys() - {"rounding_mode"} or (node.op == "floor_divide" and node.dtype in FLOATS):
        node.shape = None  # alpha=: not among the families


def _cast_dtype(node: Node, refs: list[Node]) -> str | None:
    if node.op in _CAST_DTYPES:
        return _CAST_DTYPES[node.op]
    if len(refs) == 2:
        return refs[1].dtype
    for value in (*node.args[1:], *node.kwargs.values()):
        if isinstance(value, Dtype) and value.name != "device":
            return value.name
    return refs[0].dtype


def _infer_reduce(node: Node, first: Node) -> None:
    axes = reduce_axes(node, len(first.shape or ()))
    node.shape = reduced_shape(first.shape or (), axes, keepdim(node))
    wanted = node.kwargs.get("dtype")
    node.dtype = wanted.name if isinstance(wanted, Dtype) else first.dtype
    if node.op == "sum" and is_integer(node.dtype):
        node.dtype = "int64"
    if node.op == "linalg_vector_norm" and argument(node, 1, "ord", 2) != 2:
        node.shape = None
    if node.op == "norm" and argument(node, 1, "p", "fro") not in (2, 2.0, "fro"):
        node.shape = None


def keepdim(node: Node) -> bool:
    return bool(argument(node, 3 if node.op in ("linalg_vector_norm", "norm") else 2, "keepdim", False))


def _infer_primitive(node: Node, refs: list[Node]) -> None:
    """Vendor primitives: only their shapes matter, for what follows them."""
    shapes = [ref.shape or () for ref in refs]
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
    if node.shape is not None:
        node.dtype = refs[0].dtype
