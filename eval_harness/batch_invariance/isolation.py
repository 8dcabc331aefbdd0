"""The replaced part of a graph as a graph of its own, so that its bits can be asked for without the rest of the graph.

Eager's operators around a replacement may depend on the batch themselves (a matrix product picks its algorithm by its
rows): what they do is no fault of the candidate's. The part is cut out of model.py by statements; nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from data.construct.cutting import cut, cut_graph
from data.construct.metas import ValueRecord
from data.construct.statements import Program, parse_program
from data.graph import Graph, MalformedGraphError, TensorSpec
from eval_harness.rewriting import Rewrite
from eval_harness.tracing import TensorMeta, TracedGraph

MAX_PARTS = 4
"""Different replaced parts of one graph that are looked at: layers of one model repeat themselves."""


def isolated_parts(traced: TracedGraph, rewritten: Rewrite) -> tuple[list[Graph], list[str]]:
    """The distinct replaced parts, at most MAX_PARTS, and why others cannot stand alone.

    A graph that one match replaces as a whole is its own part.
    """
    compute = {node.name for node in traced.ir.calls}
    if len(rewritten.matches) == 1 and compute <= rewritten.replaced_nodes:
        return [traced.graph], []
    try:
        program = parse_program(traced.graph.model_source, f"{traced.graph.name}/model.py")
    except MalformedGraphError as error:
        return [], [str(error)]
    parts: dict[object, Graph] = {}
    reasons: dict[str, None] = {}
    for applied in rewritten.matches:
        found = _part(traced, program, applied.nodes, f"{traced.graph.name}/{applied.rule}")
        if isinstance(found, Graph):
            # layers differ in the names and the statistics of what goes in
            kinds = [(spec.name, spec.shape, spec.dtype) for spec in found.specs.values()]
            parts.setdefault((found.model_source, *kinds), found)
        else:
            reasons.setdefault(f"{applied.rule}: {found}")
    return list(parts.values())[:MAX_PARTS], list(reasons)


def _part(traced: TracedGraph, program: Program, nodes: Iterable[str], name: str) -> Graph | str:
    statements = _statements(traced, program, nodes)
    if statements is None:
        return "its operators are no whole statements of model.py"
    tensors = {node for node, value in traced.values.items() if isinstance(value, TensorMeta)}
    weights = [spec.name for spec in traced.graph.specs.values() if spec.role == "weight"]
    found = cut(program, statements, tensors=tensors, parameters=weights)
    if found is None:
        return "its statements cannot stand alone"
    records: dict[str, ValueRecord] = {}
    for value in found.inputs:
        record = _record(value, traced.values[value], traced.graph.specs)
        if record is None:
            return f"its input {value} holds integers that the graph computes: any others might be no indices"
        records[value] = record
    net = {"family": traced.graph.family} if traced.graph.family else {}
    return cut_graph(program, found, records, name, net=net, specs=traced.graph.specs)


def _statements(traced: TracedGraph, program: Program, nodes: Iterable[str]) -> list[int] | None:
    """Indices of the statements that made these nodes; None if one is not found."""
    # of a statement with several operators only the last is named after the variable that it assigns
    by_line = {
        node.where: program.definitions[node.name] for node in traced.ir.calls if node.name in program.definitions
    }
    found = [program.definitions.get(name, by_line.get(traced.ir.by_name[name].where)) for name in nodes]
    return None if any(index is None for index in found) else sorted({index for index in found if index is not None})


def _record(name: str, meta: TensorMeta, specs: Mapping[str, TensorSpec]) -> ValueRecord | None:
    shape, dtype = meta.shape, str(meta.dtype)
    if (spec := specs.get(name)) is not None:
        low, high = (None if bound is None else int(bound) for bound in (spec.min_val, spec.max_val))
        return ValueRecord(shape=shape, dtype=dtype, mean=spec.mean, std=spec.std, min_val=low, max_val=high)
    if meta.dtype.is_floating_point:
        return ValueRecord(shape=shape, dtype=dtype, mean=0.0, std=1.0)
    return ValueRecord(shape=shape, dtype=dtype) if dtype == "torch.bool" else None
