"""Tracing: a pattern or a graph -> IRGraph; a graph also gets the metadata of every node.

trace_callable runs in the candidate process for patterns and on the trusted side for graphs; trace_graph on the trusted
side alone. recording.py says what is kept that plain FX tracing changes. Metadata (shape, dtype, stride, which storage
a value lives in, which storages a node writes) come from one run on fake tensors: nothing is computed.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from data.graph import Graph
from data.model_check import load_graph_module
from data.syntax import parse_source
from eval_harness.graph_ir import IRGraph, IRNode, Ref
from eval_harness.graph_values import map_refs
from eval_harness.ir_execution import on_device, run_node
from eval_harness.recording import TraceError, function_where, record_call, short_path

__all__ = [
    "UNKNOWN",
    "TensorMeta",
    "TraceError",
    "TracedGraph",
    "TracedProgram",
    "trace_callable",
    "trace_graph",
    "trace_values",
]


def trace_callable(fn: Callable[..., Any], arg_names: Sequence[str], *, source: str | None = None) -> IRGraph:
    """Trace fn, called with one value a name. Nodes are named after the variables they are assigned to.

    source: the text of fn's file, if linecache does not have it. Raises TraceError.
    """
    recorder, result = record_call(fn, arg_names)
    returned = recorder.plain((result,), function_where(fn))
    nodes = [
        *recorder.nodes,
        IRNode("output" if "output" not in recorder.names else "graph_output", "output", "output", returned),
    ]
    return IRGraph(_named_after_variables(nodes, _assigned_names(fn, source)))


def _assigned_names(fn: Callable[..., Any], source: str | None) -> dict[str, str]:
    """ "file:line" -> name, for statements `name = ...` of fn's file."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return {}
    text = source if source is not None else "".join(linecache.getlines(code.co_filename))
    try:
        tree = parse_source(text)
    except (SyntaxError, ValueError):
        return {}
    short = short_path(code.co_filename)
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                names[f"{short}:{line}"] = node.targets[0].id
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names[f"{short}:{node.lineno}"] = node.target.id
    return names


def _named_after_variables(nodes: list[IRNode], names: dict[str, str]) -> list[IRNode]:
    """Rename the last node of each assignment to the variable, so that messages speak of the source's names."""
    last = {}
    for node in nodes:
        if node.op not in ("placeholder", "output") and node.where in names:
            last[(node.where, names[node.where])] = node.name
    renamed: dict[str, str] = {}
    counts: dict[str, int] = {}
    taken = {node.name for node in nodes}
    for (_, variable), node_name in last.items():
        name, count = variable, counts.get(variable, 0)
        while name in taken:
            count += 1
            name = f"{variable}_{count}"
        counts[variable] = count
        taken.add(name)
        renamed[node_name] = name

    def swap(ref: Ref) -> Ref:
        return Ref(renamed.get(ref.name, ref.name))

    return [
        IRNode(
            renamed.get(node.name, node.name), node.op, node.target,
            map_refs(node.args, swap), map_refs(dict(node.kwargs), swap), node.where,
        )
        for node in nodes
    ]  # fmt: skip


@dataclass(frozen=True)
class TensorMeta:
    """What is known of a tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    stride: tuple[int, ...]
    storage: int
    """Number of the storage that it lives in; views share it."""


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()
"""The value of a node that could not be run on fake tensors (its shape depends on data)."""


@dataclass(frozen=True)
class TracedProgram:
    """A graph ready to be matched: a task's, or a part of a larger program (apply/)."""

    ir: IRGraph
    values: Mapping[str, Any]
    """Node name -> its value, with a TensorMeta in place of each tensor; UNKNOWN if it depends on data."""
    storages: Mapping[str, frozenset[int]]
    """Node name -> storages of the tensors in its value; for an UNKNOWN value those of its inputs and one more."""
    writes: Mapping[str, frozenset[int]]
    """Node name -> storages that executing it changes (in-place operators, setitem, out=)."""


@dataclass(frozen=True)
class TracedGraph(TracedProgram):
    """A task's graph, ready to be matched."""

    graph: Graph


def trace_graph(graph: Graph) -> TracedGraph:
    """Trace a graph and run it once on fake tensors.

    Device literals become "cuda" where the machine's device is meant (data.model_check maps them); build_module puts
    the real one. Raises TraceError, or MalformedGraphError for a model.py that the check refuses.
    """
    module = load_graph_module(graph, "cuda")
    ir = trace_callable(module.forward, graph.arguments, source=graph.model_source)
    return run_on_fake_tensors(graph, ir)


def run_on_fake_tensors(graph: Graph, ir: IRGraph) -> TracedGraph:
    """Metadata of every node of ir, whose inputs are described by graph.specs."""

    def empty(target: str) -> torch.Tensor:
        spec = graph.specs[target]
        return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype.removeprefix("torch.")))

    program = trace_values(ir, empty)
    return TracedGraph(program.ir, program.values, program.storages, program.writes, graph)


def trace_values(ir: IRGraph, make_input: Callable[[str], torch.Tensor]) -> TracedProgram:
    """Metadata of every node of ir. make_input: a placeholder's target -> a tensor like it, made among fake tensors."""
    run = _FakeRun()
    with FakeTensorMode(), torch.no_grad():
        for node in ir.nodes:
            if node.op == "placeholder":
                run.keep(node.name, make_input(node.target), frozenset())
            else:
                run.execute(on_device(node, torch.device("cpu")))
    return TracedProgram(ir, run.metas, run.storages, run.writes)


class _FakeRun:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.metas: dict[str, Any] = {}
        self.storages: dict[str, frozenset[int]] = {}
        self.writes: dict[str, frozenset[int]] = {}
        self._numbers: dict[int, int] = {}
        self._fresh = 0

    def execute(self, node: IRNode) -> None:
        inputs = list(dict.fromkeys(node.refs()))
        if any(self.metas[name] is UNKNOWN for name in inputs):
            self._unknown(node, inputs)
            return
        tensors = [tensor for name in inputs for tensor in _tensors(self.values[name])]
        versions = [tensor._version for tensor in tensors]
        try:
            value = run_node(node, self.values)
        except Exception:
            # an operator without a fake kernel, or a result whose shape depends on values
            self._unknown(node, inputs)
            return
        changed = [tensor for tensor, version in zip(tensors, versions, strict=True) if tensor._version != version]
        written = frozenset(self._number(tensor) for tensor in changed) | self._running_statistics(node)
        self.keep(node.name, value, written)

    def keep(self, name: str, value: Any, written: frozenset[int]) -> None:
        self.values[name] = value
        self.metas[name] = _meta_of(value, self._number)
        self.storages[name] = frozenset(self._number(tensor) for tensor in _tensors(value))
        self.writes[name] = written

    def _unknown(self, node: IRNode, inputs: list[str]) -> None:
        self._fresh -= 1
        reads = frozenset().union(*(self.storages[name] for name in inputs))
        self.values[node.name] = self.metas[node.name] = UNKNOWN
        self.storages[node.name] = reads | {self._fresh}
        first = next(iter(inputs), None)
        self.writes[node.name] = self.storages[first] if first is not None and is_in_place(node) else frozenset()

    def _running_statistics(self, node: IRNode) -> frozenset[int]:
        # written inside the kernel, without a new version
        if node.short_target not in ("batch_norm", "instance_norm"):
            return frozenset()
        in_training = node.kwargs.get("training", node.kwargs.get("use_input_stats", False)) or (
            len(node.args) > 5 and node.args[5] is True
        )
        statistics = [*node.args[1:3], node.kwargs.get("running_mean"), node.kwargs.get("running_var")]
        if not in_training:
            return frozenset()
        return frozenset().union(*(self.storages[ref.name] for ref in statistics if isinstance(ref, Ref)))

    def _number(self, tensor: torch.Tensor) -> int:
        # the numbers stay valid because self.values keeps every tensor, and so its storage, alive
        return self._numbers.setdefault(tensor.untyped_storage()._cdata, len(self._numbers))


def is_in_place(node: IRNode) -> bool:
    """By its spelling: iadd, setitem, add_, relu(inplace=True), out=."""
    name = node.short_target
    if node.op == "call_function" and node.target.startswith("_operator."):
        return name == "setitem" or name in IN_PLACE_OPERATORS
    if node.op not in ("call_function", "call_method"):
        return False
    in_place_name = name.endswith("_") and not name.endswith("__")
    return in_place_name or node.kwargs.get("inplace") is True or node.kwargs.get("out") is not None


IN_PLACE_OPERATORS = frozenset(
    f"i{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    return []


def _meta_of(value: Any, number: Callable[[torch.Tensor], int]) -> Any:
    if isinstance(value, torch.Tensor):
        return TensorMeta(tuple(value.shape), value.dtype, tuple(value.stride()), number(value))
    if isinstance(value, torch.Size):
        return tuple(int(item) for item in value)
    if isinstance(value, (tuple, list)):
        return (
            type(value)(_meta_of(item, number) for item in value)
            if type(value) in (tuple, list)
            else tuple(_meta_of(item, number) for item in value)
        )
    if isinstance(value, dict):
        return {key: _meta_of(item, number) for key, item in value.items()}
    return value
