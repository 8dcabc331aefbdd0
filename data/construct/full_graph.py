"""A captured graph, whole -> its files in PassNet's layout, what its values were, and how it is wired.

Arguments are in_0.. with parameters, buffers and constants first, values are tmp_0.., one operator a statement.
Symbolic sizes become the numbers that they were, and calls that change nothing in inference are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from data.construct.constraints import (
    BUILT_IN_NAMESPACES,
    CUSTOM_OPS_DIR,
    Constraint,
    RejectedGraphError,
    find_custom_op_source,
)
from data.construct.dynamic_sizes import constraints_source
from data.construct.extract import CapturedGraph
from data.construct.metas import VALUES_FILE, ValueRecord, graph_files, meta_class, values_text
from data.construct.subgraph import Slice, is_parameter, operator_name
from data.construct.writer import index_bounds, model_source
from data.graph import (
    GRAPH_NET_FILE,
    INPUT_CONSTRAINTS_FILE,
    Graph,
)

"""Beside a graph's files: name of each argument and tensor value -> what it was when it was made."""

_WITHOUT_EFFECT = frozenset(
    {
        "_log_api_usage_once", "_set_grad_enabled", "set_grad_enabled", "_check", "_check_is_size", "_check_value",
        "_check_index", "_assert", "_assert_async", "_assert_scalar",
    }
)  # fmt: skip
"""Calls that change no value of a forward pass."""
_SIZE_QUERIES = frozenset(
    {
        "size", "dim", "ndim", "numel", "nelement", "shape", "stride", "storage_offset", "sym_size", "sym_numel",
        "sym_stride",
    }
)  # fmt: skip

Wiring = tuple[tuple[str, tuple[str, ...]], ...]
"""(operator, names read) of every statement, then the arguments and what is returned: equal for graphs that one choice
of statements cuts alike, whatever their literals."""


@dataclass(frozen=True)
class FullGraph:
    """One full graph, ready to be written."""

    graph: Graph
    values: Mapping[str, ValueRecord]
    """in_N and tmp_N -> what each tensor was; other values have no entry."""
    wiring: Wiring
    custom_ops: Mapping[str, str] = field(default_factory=dict)
    """File name -> source of the operators that are not PyTorch's own."""


def full_graph(
    captured: CapturedGraph,
    name: str,
    *,
    model_name: str,
    dynamic: bool = False,
    net: Mapping[str, Any] | None = None,
) -> FullGraph:
    """The captured graph as files. Raises RejectedGraphError if it cannot be written.

    dynamic: also write the sizes that stayed symbolic. net: further keys of graph_net.json.
    """
    part, folded = _whole(captured)
    try:
        source = model_source(part, folded)
    except ValueError as error:
        raise RejectedGraphError(Constraint.SERIALIZABLE, f"{name}: {error}") from None
    bounds = index_bounds(part)
    metas = [
        meta_class(f"in_{index}", node.name, bounds.get(node.name, captured.stats[node]), _fixed(captured, node))
        for index, node in enumerate(part.inputs)
    ]
    files = graph_files(source, metas, {"dynamic": dynamic, "model_name": model_name, **(net or {})})
    if dynamic:
        shapes = [captured.stats[node].shape for node in part.inputs]
        files[INPUT_CONSTRAINTS_FILE] = constraints_source(part.inputs, shapes)
    names = _names(part)
    values = {names[node]: captured.stats[node] for node in (*part.inputs, *part.nodes) if node in captured.stats}
    return FullGraph(Graph(name, files), values, _wiring(part, names), _custom_ops(part))


def write_full_graph(full: FullGraph, directory: str | Path) -> None:
    """Write the graph's files, values.json and custom_ops/ into a folder, graph_net.json last: it marks completion."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    (path / VALUES_FILE).write_text(values_text(full.values), encoding="utf-8")
    for file, text in full.custom_ops.items():
        (path / CUSTOM_OPS_DIR).mkdir(exist_ok=True)
        (path / CUSTOM_OPS_DIR / file).write_bytes(text.encode("utf-8"))
    files = {file: text for file, text in full.graph.files.items() if file != GRAPH_NET_FILE}
    for file, text in {**files, GRAPH_NET_FILE: full.graph.files[GRAPH_NET_FILE]}.items():
        (path / file).write_bytes(text.encode("utf-8"))


def _whole(captured: CapturedGraph) -> tuple[Slice, dict[torch.fx.Node, str]]:
    """All of the graph as one slice, and the literals of its symbolic sizes. Raises RejectedGraphError."""
    nodes: list[torch.fx.Node] = []
    folded: dict[torch.fx.Node, str] = {}
    returned: list[torch.fx.Node] = []
    inputs: list[torch.fx.Node] = []
    for node in captured.graph.nodes:
        if node.op == "output":
            returned = [part for part in node.all_input_nodes if part in captured.stats]
        elif _is_nested(node):
            raise RejectedGraphError(Constraint.DECOMPOSABLE, f"{_nested_name(node)} holds a graph of its own")
        elif node in captured.scalars and _is_size_arithmetic(node, folded):
            value = captured.scalars[node]
            folded[node] = repr(tuple(value) if isinstance(value, torch.Size) else value)
        elif node.op in ("placeholder", "get_attr"):
            inputs.append(node)
        elif not _is_without_effect(node):
            nodes.append(node)
    if not returned:
        raise RejectedGraphError(Constraint.RUNNABLE, "it returns no tensor")
    read = {producer for node in nodes for producer in node.all_input_nodes} | set(returned)
    inputs = [node for node in inputs if node in read]
    unknown = [node.name for node in inputs if node not in captured.stats]
    if unknown:
        raise RejectedGraphError(Constraint.SERIALIZABLE, f"the input {unknown[0]} is no plain tensor")
    ordered = sorted(inputs, key=lambda node: not _is_fixed(node))  # stable: each kind in order of first use
    stats = {node.name: captured.stats[node] for node in ordered}
    return Slice(tuple(nodes), tuple(ordered), tuple(returned), stats), folded


def _is_nested(node: torch.fx.Node) -> bool:
    higher_order = isinstance(node.target, torch._ops.HigherOrderOperator)
    return node.op == "call_module" or (node.op == "call_function" and higher_order)


def _nested_name(node: torch.fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else operator_name(node)


def _is_size_arithmetic(node: torch.fx.Node, folded: Mapping[torch.fx.Node, str]) -> bool:
    """A symbolic size, or a number computed from sizes alone: not from the content of a tensor."""
    others = [producer for producer in node.all_input_nodes if producer not in folded]
    if node.op == "placeholder":
        return True
    return not others or operator_name(node).partition(".")[0] in _SIZE_QUERIES or node.target is getattr


def _is_without_effect(node: torch.fx.Node) -> bool:
    name = operator_name(node)
    if name == "_enter_autocast":
        return len(node.args) > 2 and node.args[2] is False
    if name == "_exit_autocast":
        return isinstance(node.args[0], torch.fx.Node) and _is_without_effect(node.args[0])
    return name in _WITHOUT_EFFECT and not node.users


def _is_fixed(node: torch.fx.Node) -> bool:
    """A parameter, a buffer or a constant: it does not come with the call."""
    return node.op == "get_attr" or is_parameter(node)


def _fixed(captured: CapturedGraph, node: torch.fx.Node) -> list[Any] | None:
    return captured.literals.get(node) if _is_fixed(node) else None


def _names(part: Slice) -> dict[torch.fx.Node, str]:
    """As model_source names them."""
    arguments = {node: f"in_{index}" for index, node in enumerate(part.inputs)}
    return {**arguments, **{node: f"tmp_{index}" for index, node in enumerate(part.nodes)}}


def _wiring(part: Slice, names: Mapping[torch.fx.Node, str]) -> Wiring:
    def read(nodes: Any) -> tuple[str, ...]:
        return tuple(names[node] for node in nodes if node in names)

    statements = tuple((operator_name(node), read(node.all_input_nodes)) for node in part.nodes)
    return (*statements, ("arguments", read(part.inputs)), ("return", read(part.outputs)))


def first_difference(base: Wiring, other: Wiring) -> str:
    """Why two graphs cannot be cut alike, in one line."""
    for index, (left, right) in enumerate(zip(base[:-2], other[:-2], strict=False)):
        if left != right:
            return f"statement {index} is {_shown(right)}, in the base {_shown(left)}"
    if len(base) != len(other):
        return f"{len(other) - 2} statements, in the base {len(base) - 2}"
    return "it takes other arguments or returns other values than the base"


def _shown(statement: tuple[str, tuple[str, ...]]) -> str:
    return f"{statement[0]}({', '.join(statement[1])})"


def _custom_ops(part: Slice) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in part.nodes:
        if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            namespace, name = str(node.target).split(".")[:2]
            if namespace not in BUILT_IN_NAMESPACES:
                file, text = find_custom_op_source(namespace, name)
                found[file if found.get(file, text) == text else f"{namespace}_{file}"] = text
    return found
