"""Sizes of a region's results as the wrapper writes them, and which sizes of inputs its kernel takes for one."""

from __future__ import annotations

import itertools
import operator

from trajectories.policies.expert_dims import product, structural_dim
from trajectories.policies.expert_expr import Expr, Output, walk
from trajectories.policies.expert_index import sizes
from trajectories.policies.expert_ir import argument, shown
from trajectories.policies.expert_lower import Lowering


def size_text(lowering: Lowering, expr: Expr, axis: int) -> str:
    """One size of a result: as its operators make it, else as some input shows it."""
    return structural_dim(expr, axis) or _dim_text(lowering, sizes(expr.shapes, axis), axis - expr.rank)


def view_dims(lowering: Lowering, output: Output) -> list[str]:
    """The sizes of a result after the views of its chain, each as text."""
    base = Expr("remap", output.merged) if output.merged else output.expr
    dims = [size_text(lowering, base, axis) for axis in range(base.rank)]
    for index in output.chain:
        node, rank = lowering.node(index), len(dims)
        if node.op == "unsqueeze":
            axis = argument(node, 1, "dim") % (rank + 1)
            dims.insert(axis, "1")
        elif node.op == "squeeze":
            if len(lowering.shapes(index)[0]) < rank:
                del dims[argument(node, 1, "dim") % rank]
        elif node.op == "flatten":
            start, end = argument(node, 1, "start_dim", 0) % rank, argument(node, 2, "end_dim", -1) % rank
            dims[start : end + 1] = [product(dims[start : end + 1])]
        elif node.op in ("view", "reshape"):
            dims = _viewed(lowering, index, dims)
    return dims


def _viewed(lowering: Lowering, index: int, dims: list[str]) -> list[str]:
    """Sizes after view(...): its literals, and what is left for -1."""
    rows = []
    for program in lowering.programs:
        node = program.nodes[index]
        rest = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
        rows.append(tuple(node.kwargs.get("shape", rest)))
    texts = [lowering.literal([row[axis] for row in rows]) for axis in range(len(rows[0]))]
    if "-1" not in texts:
        return texts
    others = [text for text in texts if text != "-1"]
    whole = product(dims)
    left = f"{whole} // ({product(others)})" if len(others) > 1 else f"{whole} // {others[0]}" if others else whole
    return [left if text == "-1" else text for text in texts]


def _dim_text(lowering: Lowering, wanted: tuple[int, ...], from_end: int) -> str:
    """One size: of an array that has it at the same place from the end, at another, a sum or product of two."""
    if set(wanted) == {1}:
        return "1"
    axes = [(leaf, axis) for leaf in lowering.leaves for axis in range(leaf.expr.rank)]
    axes.sort(key=lambda item: item[1] - item[0].expr.rank != from_end)
    known = [(sizes(leaf.expr.shapes, axis), f"{leaf.name}.shape[{axis}]", leaf, axis) for leaf, axis in axes]
    for have, text, _, _ in known:
        if have == wanted:
            return text
    pairs = [
        (a, b) for a, b in itertools.product(known, known) if len(set(wanted)) > 1 or a[2] is not b[2] or a[3] < b[3]
    ]
    pairs.sort(key=lambda pair: not (pair[0][2] is pair[1][2] and pair[1][3] == pair[0][3] + 1))
    for sign, combine in (("*", operator.mul), ("+", operator.add)):
        for first, second in pairs:
            if tuple(map(combine, first[0], second[0])) == wanted and 1 not in (*first[0], *second[0]):
                return f"{first[1]} {sign} {second[1]}"
    return lowering.literal(wanted)


def folded_batches(lowering: Lowering) -> list[tuple[str, int]]:
    """Axes of inputs that are 1 in every graph and that a view folds away: another size would be read wrongly."""
    region = lowering.region
    nodes = [node for node in region.programs[0].nodes if node.statement in region.indices]
    if not any(node.op in ("view", "reshape", "flatten") for node in nodes):
        return []
    found = []
    for key in region.inputs:
        shapes = [program.nodes[program.variables[key]].shape or () for program in region.programs]
        for axis in range(len(shapes[0])):
            if all(len(shape) > axis and shape[axis] == 1 for shape in shapes):
                found.append((shown(key), axis))
    return found


def assumed_equal(lowering: Lowering) -> list[tuple[str, str]]:
    """Pairs of sizes that index arithmetic takes for one, since operators join their tensors or broadcast them."""
    pairs: dict[tuple[str, str], None] = {}
    exprs = {id(expr): expr for output in lowering.outputs for expr in walk(output.expr)}
    for expr in exprs.values():
        if expr.kind == "window" and expr.data[6]:  # the window was made for the sizes at hand
            for axis in (-2, -1):
                text = structural_dim(expr.args[0], expr.rank + axis)
                pairs[(str(text), str(expr.data[0][axis] * expr.shapes[0][axis]))] = None
        if expr.kind not in ("pointwise", "cat"):
            continue
        for axis in range(expr.rank):
            if expr.kind == "cat" and axis == expr.data:
                continue
            whole = structural_dim(expr, axis)
            for arg in expr.args:
                own = axis - expr.rank + arg.rank
                text = structural_dim(arg, own) if own >= 0 else None
                if not text or not whole or text in (whole, "1"):
                    continue
                if sizes(arg.shapes, own) == sizes(expr.shapes, axis):
                    pairs[(text, whole)] = None
                elif set(sizes(arg.shapes, own)) == {1}:
                    pairs[(text, "1")] = None
    return list(pairs)
