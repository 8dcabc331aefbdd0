"""Writes the numba module of a region: the kernel and the wrapper around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trajectories.policies.expert_columns import ColumnEmitter
from trajectories.policies.expert_emit import Slip
from trajectories.policies.expert_expr import Expr, Output
from trajectories.policies.expert_half import HALF_FILE, MATHS_FUNCTIONS, maths_file
from trajectories.policies.expert_ir import CASTS, SAME, VIEWS, shown
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_sizes import folded_batches, size_text

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
        shape = _sizes_text(lowering, output.expr, output.order if output.is_permuted else ())
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
    lowering.region.literals = {name: k for name, k in lowering.region.literals.items() if _uses(text, name)}
    names = [name for name in ("F", "SHIFT", "bits", "load", "rnd", "store", "wide") if _uses(text, name)]
    wrapper = "fused_" + "_".join(title_of(lowering))
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
    return KernelText(" ".join(title_of(lowering)), wrapper, source, helpers)


def _wrapper(lowering: Lowering, name: str, lines: list[str]) -> str:
    arguments = ", ".join([*map(shown, lowering.region.inputs), *lowering.region.literals])
    body = "\n".join("    " + _wrapped(line) for line in [*_refusals(lowering), *lines])
    return f"@torch.fx.wrap\ndef {name}({arguments}):\n{body}\n"


def _refusals(lowering: Lowering) -> list[str]:
    """Lines that refuse another batch where a view folds axes."""
    lines = []
    for name, axis in folded_batches(lowering):
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


def _sizes_text(lowering: Lowering, expr: Expr, order: Sequence[int] = ()) -> str:
    """A shape from the arrays at hand: one that has it whole, else dimension by dimension."""
    shapes = expr.shapes
    for leaf in lowering.leaves:
        if leaf.expr.shapes == shapes and not order:
            return f"{leaf.name}.shape"
    dims = [size_text(lowering, expr, axis) for axis in order or range(len(shapes[0]))]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


def _suffix(lowering: Lowering, output: Output, *, permutes: bool = False) -> str:
    """The views that the wrapper takes of a result."""
    if permutes and output.is_permuted:
        return f".permute({output.inverse}){output.suffix}"
    if output.merged is None:
        return output.suffix
    return f".view({_sizes_text(lowering, Expr('remap', output.merged))}){output.suffix}"


def title_of(lowering: Lowering) -> list[str]:
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
