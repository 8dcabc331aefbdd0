"""From a task to a pass folder: which statements of its graphs are fused, and the files that say so.

Graphs with the same operations share one kernel; each distinct model.py text gets a rule, whose pattern is the fused
statements verbatim. Nothing here runs torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from data.graph import Graph
from eval_harness.candidate import MANIFEST_FILE
from trajectories.policies.expert_emit import Slip
from trajectories.policies.expert_expr import Region, number_text
from trajectories.policies.expert_ir import (
    CASTS,
    SAME,
    VIEWS,
    Dtype,
    Node,
    OutsideFamiliesError,
    Program,
    Ref,
)
from trajectories.policies.expert_lower import FUSIBLE
from trajectories.policies.expert_operators import OperatorLowering
from trajectories.policies.expert_read import read_program
from trajectories.policies.expert_wrapper import KernelText, write_numba, write_triton

_EXACT = {
    "permute",
    "transpose",
    "sum",
    "mean",
    "amax",
    "amin",
    "softmax",
    "cat",
    "unsqueeze",
    "squeeze",
    "flatten",
    "pow",
}
"""Operators whose numbers choose what is computed, so that graphs that differ in them do not share a kernel."""


@dataclass
class RuleText:
    """One rule of a pass."""

    name: str
    pattern: list[str]
    """Statements."""
    inputs: list[str]
    outputs: list[str]
    literals: list[str]
    """Values of the wrapper's literal arguments, as text."""
    kernel_module: str
    wrapper: str


@dataclass
class PassPlan:
    """A generated pass folder and what the expert says of it."""

    files: dict[str, str] = field(default_factory=dict)
    """In the order in which they are written; the manifest is last."""
    rules: list[RuleText] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    """One line a fused region: its operators."""
    refused: list[str] = field(default_factory=list)
    """What stays outside and why."""


def plan_pass(graphs: Sequence[Graph], device: str, slip: Slip | None = None) -> PassPlan:
    """The pass for a task; files is empty where nothing can be fused. slip: what the kernels get wrong."""
    plan = PassPlan()
    write = partial(write_triton if device.startswith("cuda") else write_numba, slip=slip)
    for programs in _groups(graphs, plan):
        for indices in _regions(programs[0], programs):
            fused = _lower_largest(programs, indices, plan, write)
            if fused is not None:
                _add_region(plan, *fused)
    if plan.rules:
        plan.files[MANIFEST_FILE] = json.dumps([rule.name for rule in plan.rules]) + "\n"
    return plan


def rule_source(rule: RuleText, kernel: str = "") -> str:
    """Text of a rule file; kernel: the kernel's own source, if it stands in the same file."""
    arguments = ", ".join(rule.inputs)
    results = rule.outputs[0] if len(rule.outputs) == 1 else f"({', '.join(rule.outputs)})"
    head = kernel.rstrip() if kernel else f"import torch\n\nfrom pass_dir.{rule.kernel_module} import {rule.wrapper}"
    given = [*rule.inputs, *rule.literals]
    body = "\n".join("    " + line for line in rule.pattern)
    return (
        f"{head}\n\n\ndef pattern({arguments}):\n{body}\n    return {results}\n\n\n"
        f"def replacement_args({arguments}):\n    return ({', '.join(given)}{',' if len(given) == 1 else ''})\n\n\n"
        f"def replacement_func():\n    return {rule.wrapper}\n"
    )


def _groups(graphs: Sequence[Graph], plan: PassPlan) -> list[list[Program]]:
    groups: dict[Any, list[Program]] = {}
    for graph in graphs:
        try:
            program = read_program(graph)
        except OutsideFamiliesError as error:
            plan.refused.append(f"{graph.name}: {error}")
            continue
        groups.setdefault(_signature(program), []).append(program)
    return list(groups.values())


def _signature(program: Program) -> Any:
    return (
        program.arguments,
        program.returns,
        tuple(
            (
                node.op,
                _shape_of(node.args, node),
                tuple((key, _shape_of(value, node)) for key, value in node.kwargs.items()),
                None if node.shape is None else len(node.shape),
                node.is_float,
                node.dtype == "bool",
            )
            for node in program.nodes
        ),
    )


def _shape_of(value: Any, node: Node) -> Any:
    """A literal without what may differ inside a group."""
    if isinstance(value, tuple):
        return tuple(_shape_of(item, node) for item in value)
    if isinstance(value, slice):
        return ("slice", *(_shape_of(part, node) for part in (value.start, value.stop)), value.step)
    if isinstance(value, Dtype):
        return "dtype"
    if isinstance(value, Ref) or value is None or isinstance(value, bool | str) or node.op in _EXACT:
        return value
    return (type(value).__name__, isinstance(value, int) and value < 0) if value is not Ellipsis else "..."


def _regions(program: Program, programs: Sequence[Program]) -> list[list[int]]:
    """Connected sets of fusible statements, the largest first."""
    outside = {
        node.statement
        for item in programs
        for node in item.nodes
        if node.op != "input" and (node.op not in FUSIBLE or node.shape is None)
    }
    component: dict[int, set[int]] = {}
    setters = {statement.sets: index for index, statement in enumerate(program.statements)}
    last_break = -1
    for index, statement in enumerate(program.statements):
        if index in outside:
            last_break = index
            continue
        joined = {index}
        for name in statement.reads:
            source = setters.get(name, -1)
            if source > last_break and source in component:
                joined |= component[source]
        for member in joined:
            component[member] = joined
    unique = {id(members): sorted(members) for members in component.values()}
    return sorted(unique.values(), key=lambda members: -len(members))


def _make_region(programs: Sequence[Program], indices: list[int]) -> Region | None:
    """The region of these statements, less views of inputs that are needed outside; None if nothing is computed."""
    program, kept = programs[0], list(indices)
    while True:
        sets = {program.statements[index].sets for index in kept}
        needed = {name for name in program.returns if name in sets}
        for index, statement in enumerate(program.statements):
            if index not in kept:
                needed |= sets & set(statement.reads)
        drop = [i for i in kept if program.statements[i].sets in needed and _only_views(program, i, kept)]
        if not drop:
            break
        kept = [index for index in kept if index not in drop]
    if not any(_computes(node) for node in program.nodes if node.statement in kept):
        return None
    reads = [name for index in kept for name in program.statements[index].reads if name not in sets]
    outputs = [program.statements[index].sets for index in kept if program.statements[index].sets in needed]
    return Region(programs, tuple(kept), sorted(set(reads), key=_natural), outputs)


def _natural(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(\d*)", name)
    assert match is not None
    return match[1], int(match[2] or 0)


def _only_views(program: Program, index: int, kept: list[int]) -> bool:
    node = program.nodes[program.statements[index].node]
    while node.statement in kept:
        if node.op not in VIEWS | SAME:
            return False
        node = program.nodes[node.args[0].node]
    return True


def _computes(node: Node) -> bool:
    return node.op not in VIEWS | SAME | CASTS | {"input", "const"}


def _lower_largest(
    programs: Sequence[Program], indices: list[int], plan: PassPlan, write: Callable[[OperatorLowering], KernelText]
) -> tuple[Region, KernelText] | None:
    """The largest run of the statements that the writers can express, from either end."""
    reason = ""
    for size in range(len(indices), 0, -1):
        for start in range(len(indices) - size, -1, -1):
            region = _make_region(programs, indices[start : start + size])
            if region is None:
                continue
            try:
                kernel = write(OperatorLowering(region))
            except OutsideFamiliesError as error:
                reason = reason or str(error)
                continue
            if reason:
                plan.refused.append(reason)
            return region, kernel
    if reason:
        plan.refused.append(reason)
    return None


def _add_region(plan: PassPlan, region: Region, kernel: KernelText) -> None:
    """Rules of a region: one a distinct text, one kernel for all."""
    number = len(plan.summary)
    plan.summary.append(kernel.title)
    texts: dict[tuple[str, ...], int] = {}
    for index, program in enumerate(region.programs):
        texts.setdefault(tuple(region.statements(program)), index)
    stem = "".join(part.capitalize() for part in kernel.title.replace(" ", "_").split("_"))
    module = f"kernel{number or ''}"
    rules = [
        RuleText(
            name=f"{stem}{number or ''}" + (f"_{position}" if len(texts) > 1 else ""),
            pattern=list(text),
            inputs=list(region.inputs),
            outputs=list(region.outputs),
            literals=[number_text(values[index]) for values in region.literals.values()],
            kernel_module=module,
            wrapper=kernel.wrapper,
        )
        for position, (text, index) in enumerate(texts.items())
    ]
    plan.files.update(kernel.helpers)
    if len(rules) > 1:
        plan.files[f"{module}.py"] = kernel.source
    for rule in rules:
        plan.files[f"{rule.name}.py"] = rule_source(rule, "" if len(rules) > 1 else kernel.source)
    plan.rules += rules
