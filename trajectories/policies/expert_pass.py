"""From a task to a pass folder: which statements of its graphs are fused, and the files that say so.

Graphs with the same operations share one kernel; each distinct model.py text gets a rule (expert_rules.py). Nothing
here runs torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from data.graph import Graph
from eval_harness.candidate import MANIFEST_FILE
from trajectories.policies.expert_emit import Slip
from trajectories.policies.expert_expr import Region
from trajectories.policies.expert_ir import Dtype, Node, OutsideFamiliesError, Program, Ref
from trajectories.policies.expert_launch import write_triton
from trajectories.policies.expert_operators import OperatorLowering
from trajectories.policies.expert_read import read_program
from trajectories.policies.expert_regions import fused_regions
from trajectories.policies.expert_rules import RuleText, write_rules
from trajectories.policies.expert_wrapper import KernelText, write_numba

_EXACT = {
    "permute",
    "transpose",
    "sum",
    "mean",
    "amin",
    "softmax",
    "cat",
    "unsqueeze",
    "squeeze",
    "flatten",
    "pow",
    "stack",
    "amax",
    "log_softmax",
    "linalg_vector_norm",
    "norm",
    "normalize",
    "cumsum",
    "select",
    "gather",
    "index_select",
    "repeat_interleave",
    "avg_pool2d",
    "max_pool2d",
    "pad",
    "full",
    "arange",
}
"""Operators whose numbers choose what is computed, so that graphs that differ in them do not share a kernel."""


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
    on_gpu = device.startswith("cuda")
    write = partial(_write_on_gpu if on_gpu else _write_on_cpu, slip)
    fused: list[tuple[Region, KernelText]] = []
    for programs in _groups(graphs, plan):
        regions, refused = fused_regions(programs, write, joins=on_gpu)
        apart = _by_text(programs)
        if refused and len(apart) > 1:  # what one kernel cannot do for all, one for each text may
            results = [fused_regions(group, write, joins=on_gpu) for group in apart]
            if not any(reasons for _, reasons in results):
                regions, refused = [item for found, _ in results for item in found], []
        fused += regions
        plan.refused += refused
    written = write_rules(fused)
    plan.files, plan.rules, plan.summary = written.files, written.rules, [kernel.title for _, kernel in fused]
    plan.refused += written.refused
    plan.refused = list(dict.fromkeys(plan.refused))
    if plan.rules:
        plan.files[MANIFEST_FILE] = json.dumps([rule.name for rule in plan.rules]) + "\n"
    elif not plan.refused:
        plan.refused.append("nothing is computed")
    return plan


def _write_on_gpu(slip: Slip | None, region: Region) -> KernelText:
    return write_triton(OperatorLowering(region, indexes_in_kernel=True), slip)


def _write_on_cpu(slip: Slip | None, region: Region) -> KernelText:
    return write_numba(OperatorLowering(region), slip)


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


def _by_text(programs: Sequence[Program]) -> list[list[Program]]:
    """Programs apart by the text of their statements."""
    groups: dict[tuple[str, ...], list[Program]] = {}
    for program in programs:
        groups.setdefault(tuple(statement.text for statement in program.statements), []).append(program)
    return list(groups.values())


def _signature(program: Program) -> Any:
    return (
        tuple(program.variables[key] for key in program.returns),
        tuple(statement.node for statement in program.statements),
        tuple(
            (
                node.op,
                node.statement,
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
