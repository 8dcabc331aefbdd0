"""Lazy passes sent through the harness: what gives zeros, or an input as it is, must not come back CORRECT.

graph -> a rule whose pattern is the whole graph -> a replacement that computes nothing -> the judge, untimed
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from typing import Any

from data.graph import Graph
from data.syntax import parse_source
from data.task import Task
from eval_harness.candidate import MANIFEST_FILE, Candidate
from eval_harness.errors import HarnessError, ReferenceFailedError
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol
from eval_harness.tracing import TensorMeta, trace_graph

PROBES = ("zeros", "identity")


def probe_graphs(
    graphs: Sequence[tuple[Task, Graph]], evaluator: Evaluator, protocol: EvaluationProtocol
) -> Iterator[tuple[Task, Graph, str, str]]:
    """(task, graph, probe, outcome) of each; the outcome says why where no probe can be written."""
    for task, graph in graphs:
        for probe in PROBES:
            files = probe_files(graph, probe)
            if files is None:
                yield task, graph, probe, "none can be written"
                continue
            alone = Task(task.task_id, (graph,))
            try:
                verdict = evaluator.submit(Candidate(files), alone, protocol=protocol).result()
            except (HarnessError, ReferenceFailedError) as error:
                yield task, graph, probe, f"not judged: {type(error).__name__}"
                continue
            yield task, graph, probe, str(verdict.graphs[0].outcome)


def probe_files(graph: Graph, probe: str) -> dict[str, str] | None:
    """The pass folder of one probe; None where the graph has no such one (no input of the output's shape)."""
    traced = trace_graph(graph)
    returned = traced.ir.output.args[0]
    metas = [traced.values.get(ref.name) for ref in (returned if isinstance(returned, tuple | list) else [returned])]
    if not all(isinstance(meta, TensorMeta) for meta in metas):
        return None
    read = {name for node in traced.ir.nodes for name in node.refs()}
    # what the graph does not read, a pattern cannot bind
    arguments = [node.target for node in traced.ir.placeholders if node.name in read]
    if not arguments:
        return None
    results = []
    for meta in metas:
        assert isinstance(meta, TensorMeta)
        if probe == "zeros":
            shape, dtype = list(meta.shape), str(meta.dtype)
            results.append(f"torch.zeros({shape}, dtype={dtype}, device={arguments[0]}.device)")
            continue
        like = next((name for name in arguments if _fits(graph, name, meta)), None)
        if like is None:
            return None
        results.append(f"torch.empty_like({like}).copy_({like})")
    given = ", ".join(arguments)
    text = f"""import torch
from torch import device


@torch.fx.wrap
def lazy({given}):
    return {", ".join(results)}


def pattern({given}):
{_body(graph)}


def replacement_args({given}):
    return ({given},)


def replacement_func():
    return lazy
"""
    return {"Lazy.py": text, MANIFEST_FILE: json.dumps(["Lazy"])}


def _fits(graph: Graph, name: str, meta: TensorMeta) -> bool:
    spec = graph.specs[name]
    return tuple(spec.shape) == meta.shape and spec.dtype == str(meta.dtype)


def _body(graph: Graph) -> str:
    """forward's statements without those that free memory; a tuple of one result is returned as that result."""
    tree = parse_source(graph.model_source)
    function: Any = next(
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward"
    )
    kept = []
    for statement in function.body:
        frees = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        if frees and statement.value.value is None:
            continue
        if (
            isinstance(statement, ast.Return)
            and isinstance(statement.value, ast.Tuple)
            and len(statement.value.elts) == 1
        ):
            statement = ast.Return(statement.value.elts[0])
        kept.append(ast.unparse(statement))
    return "\n".join(f"    {line}" for text in kept for line in text.splitlines())
