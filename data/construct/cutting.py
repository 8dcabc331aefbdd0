"""Statements of a program -> a graph of their own: what goes in, what comes out, or why they cannot stand alone.

No torch: the same indices cut the same template out of every variant of a full graph, whatever its shapes and dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data.construct.metas import ValueRecord, graph_files, meta_class
from data.construct.rendering import rename
from data.construct.statements import Program, Statement
from data.graph import (
    Graph,
    TensorSpec,
)

_BARE_IMPORTS = ("device", "inf", "nan")
_INDENT = " " * 8


@dataclass(frozen=True)
class Cut:
    """Statements that form a graph of their own."""

    indices: tuple[int, ...]
    """In order; without statements that compute nothing (usage logs, checks, autocast that is off)."""
    inputs: tuple[str, ...]
    """Parameters first, then activations, each in the order of first use."""
    outputs: tuple[str, ...]
    """Values that others use or the program returns, in the order in which they are made."""


def cut(
    program: Program,
    indices: Sequence[int],
    *,
    tensors: Collection[str],
    parameters: Collection[str] | None = None,
    inputs_may_change: bool = False,
) -> Cut | None:
    """The cut of these statements, or None if they cannot stand alone; explain_cut says why.

    tensors: names that are tensors; parameters: names that stand first among the inputs, by default every argument of
    the program; inputs_may_change: keep a cut that writes an input in place.
    """
    found = _examine(program, indices, tensors, parameters, inputs_may_change)
    return found if isinstance(found, Cut) else None


def explain_cut(
    program: Program, indices: Sequence[int], *, tensors: Collection[str], inputs_may_change: bool = False
) -> str | None:
    """Why the statements cannot stand alone, on one line; None if they can."""
    found = _examine(program, indices, tensors, None, inputs_may_change)
    return None if isinstance(found, Cut) else found


def cut_source(program: Program, cut: Cut) -> str:
    """model.py of the cut in PassNet's layout: in_N and tmp_N, dead values set to None, no newline at the end."""
    statements = [program.statements[index] for index in cut.indices]
    names = {name: f"in_{position}" for position, name in enumerate(cut.inputs)}
    names |= {
        statement.target: f"tmp_{position}"
        for position, statement in enumerate(statements)
        if statement.target is not None
    }
    last_read = {name: statement.index for statement in statements for name in statement.reads}
    kept, made, lines = {*cut.inputs, *cut.outputs}, [], []
    for statement in statements:
        lines += [rename(line, names) for line in statement.lines]
        if statement.target is not None:
            made.append(statement.target)
        dead = [name for name in made if name not in kept and last_read.get(name, statement.index) <= statement.index]
        if dead:
            lines.append(" = ".join([*(names[name] for name in dead), "None"]))
            made = [name for name in made if name not in dead]
    returned = ", ".join(names[name] for name in cut.outputs) + ("," if len(cut.outputs) == 1 else "")
    body = "\n".join(f"{_INDENT}{line}" for line in [*lines, f"return ({returned})"])
    bare = [name for name in _BARE_IMPORTS if re.search(rf"(?<![\w.'\"]){name}\b(?! ?=[^=])", body)]
    imports = "import torch\n" + (f"\nfrom torch import {', '.join(bare)}\n" if bare else "")
    arguments = ", ".join(["self", *(names[name] for name in cut.inputs)])
    return f"{imports}\nclass GraphModule(torch.nn.Module):\n\n    def forward({arguments}):\n{body}"


def cut_graph(
    program: Program,
    cut: Cut,
    values: Mapping[str, ValueRecord],
    name: str,
    *,
    net: Mapping[str, Any],
    specs: Mapping[str, TensorSpec] | None = None,
) -> Graph:
    """The cut as a Graph, its inputs described by what they were.

    net: further keys of graph_net.json, such as model_name. specs: of the full graph; its arguments keep their original
    names and the content that their metas hold.
    """
    specs = specs or {}
    source = cut_source(program, cut)
    records = {**{name: values[name] for name in cut.inputs}, **_index_bounds(program, cut, values)}
    metas = []
    for position, value in enumerate(cut.inputs):
        spec = specs.get(value)
        original, content = (spec.original_name or value, spec.data) if spec is not None else (value, None)
        metas.append(meta_class(f"in_{position}", original, records[value], content))
    return Graph(name, graph_files(source, metas, net))


def _index_bounds(program: Program, cut: Cut, values: Mapping[str, ValueRecord]) -> dict[str, ValueRecord]:
    """Indices of an embedding may be any row of its table, not only those that this run happened to use."""
    found = {}
    for statement in (program.statements[index] for index in cut.indices):
        if statement.operator == "embedding" and len(statement.reads) > 1:
            index, table = statement.reads[:2]
            if index in cut.inputs and table in values:
                bounds = {"min_val": 0, "max_val": values[table].shape[0] - 1}
                found[index] = values[index].model_copy(update=bounds)
    return found


def _examine(
    program: Program,
    indices: Sequence[int],
    tensors: Collection[str],
    parameters: Collection[str] | None,
    inputs_may_change: bool,
) -> Cut | str:
    modes = program.modes
    end = len(program.statements)
    if any(not 0 <= index < end for index in indices):
        raise ValueError(f"statement indices {sorted(indices)} reach outside of the program's {end} statements")
    inside = sorted({*indices} - modes.without_effect)
    if not inside:
        return "no statement that computes something"
    chosen = set(inside)
    for start, stop in modes.regions:
        region = range(start, stop + 1)
        inner = sum(index in chosen for index in region)
        whole = sum(index not in modes.without_effect for index in region)
        if inner not in (0, whole) or (inner and stop == end):
            return f"it lies partly under {program.statements[start].lines[0]!r}"
    between = program.storage.path_through(inside)
    if between is not None:
        return f"not convex: {program.statements[between].lines[0]!r} lies between its statements"
    statements = [program.statements[index] for index in inside]
    inputs, outputs = _inputs(program, statements, parameters), _outputs(program, statements, chosen)
    for kind, names in (("input", inputs), ("output", outputs)):
        for name in names:
            if name not in tensors:
                return f"its {kind} {name} is no tensor"
    crossing = program.storage.crossing(inside, inputs, outputs, inputs_may_change=inputs_may_change)
    if crossing is None and not outputs:
        return "nothing that it makes is used"
    return crossing or Cut(tuple(inside), inputs, outputs)


def _inputs(program: Program, statements: Sequence[Statement], parameters: Collection[str] | None) -> tuple[str, ...]:
    made = {statement.target for statement in statements}
    found = dict.fromkeys(name for statement in statements for name in statement.reads if name not in made)
    first = set(program.arguments if parameters is None else parameters)
    return tuple(sorted(found, key=lambda name: name not in first))  # sorted keeps the order of first use


def _outputs(program: Program, statements: Sequence[Statement], inside: set[int]) -> tuple[str, ...]:
    ignored = program.modes.without_effect
    return tuple(
        statement.target
        for statement in statements
        if statement.target is not None
        and any(user not in inside and user not in ignored for user in program.uses.get(statement.target, ()))
    )
