"""Writes the wrapper around a region's kernel: views of the inputs, allocation of the outputs, the launch."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trajectories.policies.expert_columns import ColumnEmitter
from trajectories.policies.expert_emit import Slip
from trajectories.policies.expert_expr import Expr, Output
from trajectories.policies.expert_half import HALF_FILE, MATHS_FUNCTIONS, maths_file
from trajectories.policies.expert_index import sizes
from trajectories.policies.expert_ir import CASTS, SAME, VIEWS
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_triton import TritonEmitter

MAX_LINE = 110
_SHORT = {"layer_norm": "layernorm", "batch_norm": "batchnorm", "rms_norm": "rmsnorm", "masked_fill": "fill"}


@dataclass
class KernelText:
    """A kernel with its wrapper, as the text of a module."""

    title: str
    """The operators, in words."""
    wrapper: str
    source: str
    helpers: dict[str, str] = field(default_factory=dict)
    """Other files that it imports from."""


def write_numba(lowering: Lowering, slip: Slip | None = None) -> KernelText:
    """Raises OutsideFamiliesError."""
    emitter = ColumnEmitter(lowering, slip)
    kernel = emitter.kernel("_kernel")
    arrays = [leaf.name for leaf in lowering.leaves] + [output.name for output in lowering.outputs]
    scalars = [name for name in (*lowering.roundings, *lowering.region.literals) if _uses(kernel, name)]
    kernel = kernel.replace("{arguments}", ", ".join([*arrays, *scalars]))
    lines = [f"{leaf.name} = {leaf.text}" for leaf in lowering.leaves if leaf.name != leaf.text]
    for output in lowering.outputs:
        node = lowering.node(output.node)
        numpy_dtype = "np.float32" if node.is_float else "np.bool_" if node.dtype == "bool" else f"np.{node.dtype}"
        shape = _shape_text(lowering, output.expr, output.order if output.is_permuted else ())
        lines.append(f"{output.name} = np.empty({shape}, {numpy_dtype})")
    rounds = {name: f"SHIFT[{text}]" for name, text in lowering.roundings.items()}
    given = [f"{'bits' if leaf.name in emitter.as_bits else 'load'}({leaf.name})" for leaf in lowering.leaves]
    given += [f"{out.name}.transpose({out.inverse})" if out.is_permuted else out.name for out in lowering.outputs]
    lines.append(f"_kernel({', '.join([*given, *(rounds.get(name, name) for name in scalars)])})")
    results = [
        f"store({output.name}, {output.dtype}){_suffix(lowering, output, permutes=True)}" for output in lowering.outputs
    ]
    lines.append(f"return {', '.join(results)}")
    text = "\n".join([kernel, *lines])
    names = [name for name in ("F", "SHIFT", "bits", "load", "rnd", "store", "wide") if _uses(text, name)]
    wrapper = "fused_" + "_".join(_title(lowering))
    imports = ["import math\n"] if "math." in kernel else []
    imports += ["import numba", "import numpy as np", "import torch\n", f"from pass_dir.half import {', '.join(names)}"]
    maths = [name for name in MATHS_FUNCTIONS if re.search(rf"(?<!\.)\b{name}\(", kernel)]
    helpers = {"half.py": HALF_FILE}
    if maths:
        imports.append(f"from pass_dir.maths import {', '.join(maths)}")
        helpers["maths.py"] = maths_file(maths)
    options = 'error_model="numpy"'
    if re.search(r"\br\d+ = 0\.0", kernel):
        options += ', fastmath={"reassoc", "nsz"}'  # sums in any order, as eager's: eight lanes at once
    source = "\n".join(imports) + f"\n\n\n@numba.njit({options})\n{kernel}\n\n\n{_wrapper(lowering, wrapper, lines)}"
    return KernelText(" ".join(_title(lowering)), wrapper, source, helpers)


def write_triton(lowering: Lowering, slip: Slip | None = None) -> KernelText:
    """Raises OutsideFamiliesError."""
    emitter = TritonEmitter(lowering, slip)
    kernel = emitter.kernel("_kernel")
    lines = [f"{leaf.name} = {leaf.text}" for leaf in lowering.leaves if leaf.name != leaf.text]
    for output in lowering.outputs:
        shape = _shape_text(lowering, output.expr, output.order if output.is_permuted else ())
        device = lowering.region.inputs[0]
        moved = f".permute({output.inverse})" if output.is_permuted else ""
        lines.append(f"{output.name} = torch.empty({shape}, dtype={output.dtype}, device={device}.device){moved}")
    given = [
        leaf.name
        + (".contiguous()" if leaf.name in emitter.contiguous and not leaf.text.endswith(".contiguous()") else "")
        for leaf in lowering.leaves
    ]
    given += [output.name for output in lowering.outputs]
    lines.append(f"_kernel[{emitter.grid}]({', '.join([*given, *emitter.scalars, emitter.block])})")
    lines.append(f"return {', '.join(output.name + _suffix(lowering, output) for output in lowering.outputs)}")
    wrapper = "fused_" + "_".join(_title(lowering))
    imports = "import torch\nimport triton\nimport triton.language as tl"
    return KernelText(
        " ".join(_title(lowering)), wrapper, f"{imports}\n\n\n{kernel}\n\n\n{_wrapper(lowering, wrapper, lines)}"
    )


def _wrapper(lowering: Lowering, name: str, lines: list[str]) -> str:
    arguments = ", ".join([*lowering.region.inputs, *lowering.region.literals])
    body = "\n".join("    " + _wrapped(line) for line in [*_refusals(lowering), *lines])
    return f"@torch.fx.wrap\ndef {name}({arguments}):\n{body}\n"


def _refusals(lowering: Lowering) -> list[str]:
    """Lines that refuse another batch where a view folds axes: those that are 1 in every graph are folded away."""
    region = lowering.region
    nodes = [node for node in region.programs[0].nodes if node.statement in region.indices]
    if not any(node.op in ("view", "reshape", "flatten") for node in nodes):
        return []
    lines = []
    for name in region.inputs:
        shapes = [program.nodes[program.variables[name]].shape or () for program in region.programs]
        for axis in range(len(shapes[0])):
            if all(len(shape) > axis and shape[axis] == 1 for shape in shapes):
                lines += [f"if {name}.shape[{axis}] != 1:", f'    raise ValueError("{name}.shape[{axis}] must be 1")']
    return lines


def _wrapped(line: str) -> str:
    """A long call over several lines, broken after commas."""
    if len(line) <= MAX_LINE or not line.startswith("_kernel"):
        return line
    head, _, rest = line.partition("](" if line.startswith("_kernel[") else "(")
    head += "](" if line.startswith("_kernel[") else "("
    rows, row = [], ""
    for part in re.split(r"(?<=,) (?![^(]*\))", rest.removesuffix(")")):
        if row and len(row) + len(part) > MAX_LINE:
            rows.append(row.rstrip())
            row = ""
        row += part + " "
    rows.append(row.rstrip())
    return head + "".join(f"\n        {item}" for item in rows) + "\n    )"


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _shape_text(lowering: Lowering, expr: Expr, order: Sequence[int] = ()) -> str:
    """A shape from the arrays at hand: one that has it whole, else dimension by dimension."""
    shapes = expr.shapes
    for leaf in lowering.leaves:
        if leaf.expr.shapes == shapes and not order:
            return f"{leaf.name}.shape"
    dims = [
        _structural_dim(expr, axis) or _dim_text(lowering, sizes(shapes, axis), axis - len(shapes[0]))
        for axis in order or range(len(shapes[0]))
    ]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


def _suffix(lowering: Lowering, output: Output, *, permutes: bool = False) -> str:
    """The views that the wrapper takes of a result."""
    if permutes and output.is_permuted:
        return f".permute({output.inverse}){output.suffix}"
    if output.merged is None:
        return output.suffix
    return f".view({_shape_text(lowering, Expr('remap', output.merged))}){output.suffix}"


def _structural_dim(expr: Expr, axis: int) -> str | None:
    """One size as the operators make it from the arrays' sizes; None where a literal of the graph sets it."""
    if set(sizes(expr.shapes, axis)) == {1}:
        return "1"
    if expr.kind == "leaf":
        return f"{expr.fn}.shape[{axis}]"
    if expr.kind == "cat":
        parts = [_structural_dim(part, axis) for part in expr.args]
        return " + ".join(map(str, parts)) if axis == expr.data and None not in parts else parts[0]
    if expr.kind == "reduce":
        axes, keepdim = expr.data
        kept = [item for item in range(expr.args[0].rank) if keepdim or item not in axes]
        return _structural_dim(expr.args[0], kept[axis])
    if expr.kind == "gather":
        ids, table = expr.args
        return _structural_dim(ids, axis) if axis < ids.rank else _structural_dim(table, axis - ids.rank + 1)
    if expr.kind == "pointwise":
        for arg in expr.args:
            own = axis - expr.rank + arg.rank
            if own >= 0 and sizes(arg.shapes, own) == sizes(expr.shapes, axis):
                found = _structural_dim(arg, own)
                if found:
                    return found
    if expr.kind == "remap" and expr.fn in ("permute", "transpose"):
        return _structural_dim(expr.args[0], expr.data[axis])
    if expr.kind == "remap" and expr.fn == "split":
        at, groups = expr.data
        if axis == at:
            return groups
        whole = _structural_dim(expr.args[0], axis - (axis > at))
        return f"{whole} // {groups}" if axis == at + 1 and whole else whole
    if expr.kind == "remap" and expr.fn == "roll":
        return _structural_dim(expr.args[0], axis)
    return None


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


def _title(lowering: Lowering) -> list[str]:
    """Up to four telling operators."""
    region, program = lowering.region, lowering.region.programs[0]
    ops = [
        node.op
        for node in program.nodes
        if node.statement in region.indices and node.op not in VIEWS | SAME | CASTS | {"input", "const"}
    ]
    telling = [op for op in ops if op not in ("add", "sub", "mul", "div", "pow", "neg")] or ops
    chosen = telling if len(telling) >= 2 else ops
    names = list(dict.fromkeys(_SHORT.get(op, op.replace("_", "")) for op in chosen))
    return names[:4]
