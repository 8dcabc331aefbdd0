"""Writes the wrapper around a region's kernel: views of the inputs, allocation of the outputs, the launch."""

from __future__ import annotations

import itertools
import operator
import re
from dataclasses import dataclass, field

from trajectories.policies.expert_emit import Slip
from trajectories.policies.expert_index import sizes
from trajectories.policies.expert_ir import CASTS, SAME, VIEWS
from trajectories.policies.expert_lower import Lowering, Shapes
from trajectories.policies.expert_numba import HALF_FILE, NumbaEmitter

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
    kernel = NumbaEmitter(lowering, slip).kernel("_kernel")
    arrays = [leaf.name for leaf in lowering.leaves] + [output.name for output in lowering.outputs]
    scalars = [name for name in (*lowering.roundings, *lowering.region.literals) if _uses(kernel, name)]
    kernel = kernel.replace("{arguments}", ", ".join([*arrays, *scalars]))
    lines = [f"{leaf.name} = {leaf.text}" for leaf in lowering.leaves if leaf.name != leaf.text]
    for output in lowering.outputs:
        node = lowering.node(output.node)
        numpy_dtype = "np.float32" if node.is_float else "np.bool_" if node.dtype == "bool" else f"np.{node.dtype}"
        lines.append(f"{output.name} = np.empty({_shape_text(lowering, output.expr.shapes)}, {numpy_dtype})")
    rounds = {name: f"SHIFT[{text}]" for name, text in lowering.roundings.items()}
    given = [f"load({leaf.name})" for leaf in lowering.leaves] + [output.name for output in lowering.outputs]
    lines.append(f"_kernel({', '.join([*given, *(rounds.get(name, name) for name in scalars)])})")
    results = [f"store({output.name}, {output.dtype}){output.suffix}" for output in lowering.outputs]
    lines.append(f"return {', '.join(results)}")
    names = [name for name in ("F", "SHIFT", "load", "rnd", "store") if _uses(kernel + "\n".join(lines), name)]
    wrapper = "fused_" + "_".join(_title(lowering))
    imports = ["import math\n"] if "math." in kernel else []
    imports += ["import numba", "import numpy as np", "import torch\n", f"from pass_dir.half import {', '.join(names)}"]
    source = (
        "\n".join(imports) + f'\n\n\n@numba.njit(error_model="numpy")\n{kernel}\n\n\n{_wrapper(lowering, wrapper, lines)}'
    )
    return KernelText(" ".join(_title(lowering)), wrapper, source, {"half.py": HALF_FILE})


def write_triton(lowering: Lowering, slip: Slip | None = None) -> KernelText:
    """Raises OutsideFamiliesError."""
    raise NotImplementedError


def _wrapper(lowering: Lowering, name: str, lines: list[str]) -> str:
    arguments = ", ".join([*lowering.region.inputs, *lowering.region.literals])
    body = "\n".join("    " + line for line in lines)
    return f"@torch.fx.wrap\ndef {name}({arguments}):\n{body}\n"


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _shape_text(lowering: Lowering, shapes: Shapes) -> str:
    """A shape from the arrays at hand: one that has it whole, else dimension by dimension."""
    for leaf in lowering.leaves:
        if leaf.expr.shapes == shapes:
            return f"{leaf.name}.shape"
    dims = [_dim_text(lowering, sizes(shapes, axis), axis - len(shapes[0])) for axis in range(len(shapes[0]))]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


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
    pairs = [(a, b) for a, b in itertools.product(known, known) if len(set(wanted)) > 1 or a[2] is not b[2] or a[3] < b[3]]
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
        node.op for node in program.nodes
        if node.statement in region.indices and node.op not in VIEWS | SAME | CASTS | {"input", "const"}
    ]
    telling = [op for op in ops if op not in ("add", "sub", "mul", "div", "pow", "neg")] or ops
    chosen = telling if len(telling) >= 2 else ops
    names = list(dict.fromkeys(_SHORT.get(op, op.replace("_", "")) for op in chosen))
    return names[:4]
