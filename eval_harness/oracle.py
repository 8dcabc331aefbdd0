"""The float64 oracle of a graph: the same operators on float64 values, to tell an ill-conditioned draw.

Casts to a narrower float become casts to float64, so nothing is rounded on the way. It judges draws, never candidates.
"""

from __future__ import annotations

from typing import Any

import torch

from eval_harness.graph_ir import IRGraph, IRNode
from eval_harness.graph_values import map_refs

_NARROW = {torch.float32, torch.float16, torch.bfloat16}
_CAST_METHODS = {"float", "half", "bfloat16"}


def to_float64(graph: IRGraph) -> IRGraph:
    """The graph with every narrower float dtype replaced by float64. Its float inputs are to be float64."""
    return IRGraph([_widened(node) for node in graph.nodes])


def _widened(node: IRNode) -> IRNode:
    if node.op == "call_method" and node.target in _CAST_METHODS:
        return IRNode(node.name, node.op, "double", node.args, node.kwargs, node.where)
    args = map_refs(node.args, lambda ref: ref, _wide_literal)
    kwargs = map_refs(dict(node.kwargs), lambda ref: ref, _wide_literal)
    return IRNode(node.name, node.op, node.target, args, kwargs, node.where)


def _wide_literal(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value
