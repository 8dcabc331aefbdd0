"""PassNet's five constraints on a full graph: a graph that is refused says which one it breaks and why.

Runnable, serializable, decomposable, statically analyzable, custom operators accessible. The checks read a graph's
text, so they hold for graphs captured here and for downloaded folders alike. model.py is executed only after the static
check passed, and the source kept of a custom operator is never executed.
"""

from __future__ import annotations

import ast
import inspect
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import torch

from data.construct.statements import parse_program
from data.device_mapping import dotted_name, map_devices
from data.graph import GRAPH_HASH_FILE, MODEL_FILE, Graph, MalformedGraphError
from data.inputs import draw_inputs
from data.model_check import check_model_source, load_graph_module
from data.passbench import load_graph, write_graph
from data.syntax import parse_expression, parse_source

CUSTOM_OPS_DIR = "custom_ops"
"""Beside a graph's files: the source files of the operators that are not PyTorch's own."""
BUILT_IN_NAMESPACES = frozenset({"aten", "prim", "prims", "higher_order"})
RUN_SEED = 7
_REGISTERED_AT = re.compile(r"registered at (\S+\.py):\d+")


class Constraint(StrEnum):
    """What a full graph must be (PassNet's five constraints)."""

    RUNNABLE = "runnable"
    SERIALIZABLE = "serializable"
    DECOMPOSABLE = "decomposable"
    STATICALLY_ANALYZABLE = "statically_analyzable"
    CUSTOM_OPERATORS = "custom_operators"


@dataclass(frozen=True)
class Finding:
    """One constraint that a graph breaks."""

    constraint: Constraint
    reason: str
    """One line."""

    def __str__(self) -> str:
        return f"not {self.constraint}: {self.reason}"


class RejectedGraphError(ValueError):
    """A captured graph cannot be written at all; `finding` says which constraint forbids it."""

    def __init__(self, constraint: Constraint, reason: str) -> None:
        super().__init__(reason)
        self.finding = Finding(constraint, reason)


def check_constraints(
    graph: Graph | str | Path,
    *,
    custom_ops: Mapping[str, str] | None = None,
    device: str = "cpu",
    seed: int = RUN_SEED,
) -> list[Finding]:
    """Every constraint that a full graph, or the folder of one, breaks; empty if it keeps all five.

    custom_ops: file name -> source of the custom operators kept beside the graph; read from the folder if one is given.
    A graph that is not statically analyzable is not run, so nothing is said of runnable then.
    """
    if not isinstance(graph, Graph):
        folder = Path(graph)
        try:
            graph = load_graph(folder)
            custom_ops = {path.name: path.read_text("utf-8") for path in sorted(folder.glob(f"{CUSTOM_OPS_DIR}/*.py"))}
        except ValueError as error:
            return [Finding(Constraint.SERIALIZABLE, str(error))]
    findings = [
        *_breaks_serializable(graph),
        *_breaks_decomposable(graph),
        *_breaks_statically_analyzable(graph),
        *_breaks_custom_operators(graph, custom_ops or {}),
    ]
    unsafe = {Constraint.STATICALLY_ANALYZABLE, Constraint.CUSTOM_OPERATORS}
    if not any(finding.constraint in unsafe for finding in findings):
        findings += _breaks_runnable(graph, device, seed)
    return findings


def find_custom_op_source(namespace: str, name: str) -> tuple[str, str]:
    """(file name, whole text) of the Python file that registered an operator, its licence header as it is.

    Raises RejectedGraphError if the operator is not registered in this process or comes from no Python file.
    """
    operator = f"{namespace}::{name}"
    definition = torch._library.custom_ops.OPDEFS.get(operator)
    found = [inspect.getsourcefile(definition._init_fn)] if definition is not None else []
    if not found and torch._C._dispatch_has_kernel(operator):
        found = _REGISTERED_AT.findall(torch._C._dispatch_dump(operator))
    own = Path(torch.__file__).parent
    for path in (Path(text) for text in found if text):
        if path.is_file() and own not in path.parents:
            return path.name, path.read_bytes().decode("utf-8")
    raise RejectedGraphError(
        Constraint.CUSTOM_OPERATORS,
        f"{operator} comes from no Python file that could be kept beside the graph; register it in one",
    )


def _breaks_serializable(graph: Graph) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            write_graph(graph, folder)
            again = load_graph(folder, name=graph.name)
        except (MalformedGraphError, UnicodeEncodeError) as error:
            yield Finding(Constraint.SERIALIZABLE, str(error))
            return
    changed = [file for file, text in graph.files.items() if again.files.get(file) != text]
    if changed:
        yield Finding(Constraint.SERIALIZABLE, f"{graph.name}/{changed[0]}: changes when it is written and read")
    stated = graph.files.get(GRAPH_HASH_FILE)
    if stated is not None and stated.strip() != graph.graph_hash:
        reason = f"{graph.name}/{GRAPH_HASH_FILE}: is not the sha256 of {MODEL_FILE}; write it again"
        yield Finding(Constraint.SERIALIZABLE, reason)


def _breaks_decomposable(graph: Graph) -> Iterator[Finding]:
    where = f"{graph.name}/{MODEL_FILE}"
    for node in ast.walk(parse_source(graph.model_source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield Finding(Constraint.DECOMPOSABLE, f"{where}:{node.lineno}: self.{node.attr} is nested in the graph")
            return
        if isinstance(node, ast.Attribute) and dotted_name(node).startswith("torch.ops.higher_order."):
            shown = dotted_name(node).removeprefix("torch.ops.")
            yield Finding(Constraint.DECOMPOSABLE, f"{where}:{node.lineno}: {shown} takes functions, not tensors")
            return
    try:
        program = parse_program(graph.model_source, where)
    except MalformedGraphError as error:
        yield Finding(Constraint.DECOMPOSABLE, str(error))
        return
    for statement in program.statements:
        if "+" in statement.operator:
            reason = f"{where}: {statement.lines[0]!r} holds several operators; give each a statement of its own"
            yield Finding(Constraint.DECOMPOSABLE, reason)
            return


def _breaks_statically_analyzable(graph: Graph) -> Iterator[Finding]:
    try:
        check_model_source(_without_custom_calls(graph))
    except MalformedGraphError as error:
        yield Finding(Constraint.STATICALLY_ANALYZABLE, str(error))


def _breaks_custom_operators(graph: Graph, custom_ops: Mapping[str, str]) -> Iterator[Finding]:
    for namespace, name in sorted(_custom_calls(graph.model_source)):
        operator = f"{namespace}::{name}"
        if not hasattr(getattr(torch.ops, namespace), name):
            reason = f"{operator} is not registered here; import the package that defines it"
            yield Finding(Constraint.CUSTOM_OPERATORS, reason)
        elif not any(namespace in text and name in text for text in custom_ops.values()):
            reason = f"no file of {CUSTOM_OPS_DIR}/ defines {operator}; keep its source beside the graph"
            yield Finding(Constraint.CUSTOM_OPERATORS, reason)


def _breaks_runnable(graph: Graph, device: str, seed: int) -> Iterator[Finding]:
    try:
        module = _load_with_custom_calls(graph, device)
        inputs = {name: value.to(device) for name, value in draw_inputs(graph, seed=seed).items()}
        with torch.no_grad():
            outputs = module(**inputs)
    except Exception as error:  # whatever an operator raises is the answer
        first_line = next(iter(str(error).strip().splitlines()), "")[:200]
        yield Finding(Constraint.RUNNABLE, f"{graph.name}: {type(error).__name__}: {first_line}")
        return
    if not isinstance(outputs, tuple) or not outputs or not all(isinstance(value, torch.Tensor) for value in outputs):
        kinds = [type(value).__name__ for value in outputs] if isinstance(outputs, tuple) else type(outputs).__name__
        yield Finding(Constraint.RUNNABLE, f"{graph.name}: returns {kinds}; a graph returns a tuple of tensors")


def _load_with_custom_calls(graph: Graph, device: str) -> torch.nn.Module:
    """As load_graph_module, which refuses operators that are not PyTorch's own; theirs are registered in this process.

    Only for graphs whose text is otherwise checked.
    """
    if not _custom_calls(graph.model_source):
        return load_graph_module(graph, device)
    tree = map_devices(parse_source(graph.model_source), captured="cuda", target=device)
    namespace = {"torch": torch, "device": torch.device, "inf": torch.inf, "nan": torch.nan, "__name__": "graph_module"}
    exec(compile(tree, f"{graph.name}/{MODEL_FILE}", "exec"), namespace)
    return namespace["GraphModule"]()  # type: ignore[operator]


def _custom_calls(source: str) -> set[tuple[str, str]]:
    """(namespace, name) of every operator called that is not PyTorch's own."""
    calls = (node.func for node in ast.walk(parse_source(source)) if isinstance(node, ast.Call))
    paths = [dotted_name(func).split(".") for func in calls]
    return {(path[2], path[3]) for path in paths if _is_custom(path)}


def _is_custom(path: list[str]) -> bool:
    return len(path) > 3 and path[:2] == ["torch", "ops"] and path[2] not in BUILT_IN_NAMESPACES


def _without_custom_calls(graph: Graph) -> Graph:
    """The graph with a call that the static check allows in place of each custom one, arguments as they are."""
    if not _custom_calls(graph.model_source):
        return graph
    tree = parse_source(graph.model_source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_custom(dotted_name(node.func).split(".")):
            node.func = parse_expression("torch.stack")
    return Graph(graph.name, {**graph.files, MODEL_FILE: ast.unparse(ast.fix_missing_locations(tree))})
