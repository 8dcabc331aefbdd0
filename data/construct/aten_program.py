"""A program -> one graph of ATen operators that knows which statement made each node, and stretches cut out of it.

The statements run once, one after the other, on fake tensors under the tracer that AOTAutograd uses (functional form,
Inductor's decompositions). So a stretch of statements is cut without tracing again, and a write in place is a value of
its own. Private API of torch is used here and in kernel_count.py only. Nothing is lowered or counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.functional_utils import from_fun, to_fun
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.utils import _pytree as pytree

from data.construct.statements import Program, Statement
from data.device_mapping import map_devices
from data.graph import MODEL_FILE, Graph, MalformedGraphError
from data.inputs import torch_dtype
from data.model_check import check_model_source
from data.syntax import parse_source

_PLACEHOLDER = -1
"""Statement index of an argument's node."""
_LIBRARY = frozenset(["mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution", "mkldnn_rnn_layer", "_cudnn_rnn"])
_ATTENTION = "_scaled_dot_product_"


@dataclass(frozen=True)
class AtenProgram:
    """What trace_program() makes."""

    module: torch.fx.GraphModule
    fake_mode: FakeTensorMode
    made_by: dict[torch.fx.Node, int]
    """Node -> index of the statement that made it, -1 for arguments."""
    outputs: tuple[tuple[torch.fx.Node, ...], ...]
    """Of the prefix that ends with statement i: its own value and every value that a later statement reads."""
    launches: tuple[bool, ...]
    """Whether statement i computes anything: false for views, casts to the same dtype, dropout that is off, sizes."""
    library_calls: tuple[bool, ...]
    """Whether statement i is computed by a library: matmul, convolution, attention."""

    def stretch(self, start: int, stop: int) -> torch.fx.GraphModule | None:
        """Statements start to stop - 1 as a graph of their own; None if they make no tensor.

        Its inputs are the values that were made before, its outputs those of the prefix that ends there.
        """
        outputs = [node for node in self.outputs[stop - 1] if self.made_by[node] >= start]
        inside = set(_producers(outputs, lambda node: self.made_by[node] < start))
        if not outputs:
            return None
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        ordered = [node for node in self.made_by if node in inside]
        # in the order of first use, so that a layer that repeats is the same graph again
        taken = dict.fromkeys(producer for node in ordered for producer in node.all_input_nodes)
        for node in taken:
            if node not in inside:
                copies[node] = graph.placeholder(node.name)
                copies[node].meta = dict(node.meta)
        for node in ordered:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in outputs))
        return torch.fx.GraphModule(self.module, graph)


def trace_program(graph: Graph, program: Program, device: str = "cpu") -> AtenProgram:
    """Trace the program of a graph on `device`, which need not exist.

    Raises MalformedGraphError if model.py is refused, or naming a statement that does not run on fake tensors.
    """
    check_model_source(graph)
    run = _StatementRunner(graph, program, device)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_mode:
        arguments = [_empty(graph, name, device) for name in program.arguments]
    with torch.no_grad(), fake_mode, enable_python_dispatcher(), FunctionalTensorMode():
        module = make_fx(run, decomposition_table=select_decomp_table())(*arguments)
    nodes = list(module.graph.nodes)
    made_by = {node: run.made_by[node.name] for node in nodes[:-1]}
    snapshots = nodes[-1].args[0]
    outputs = tuple(
        tuple(dict.fromkeys(snapshots[index] for index in taken if made_by[snapshots[index]] != _PLACEHOLDER))
        for taken in run.outputs
    )
    computed = [list(_computed(made_by, found, index)) for index, found in enumerate(outputs)]
    library_calls = tuple(any(map(_is_library_call, nodes)) for nodes in computed)
    return AtenProgram(module, fake_mode, made_by, outputs, tuple(map(bool, computed)), library_calls)


class _StatementRunner:
    """The function that is traced. Its result is every value that the outputs of some prefix need."""

    def __init__(self, graph: Graph, program: Program, device: str) -> None:
        self.program = program
        self.codes = list(_compiled(graph, program.statements, device))
        self.where = f"{graph.name}/{MODEL_FILE}"
        self.has_mutations = any(statement.mutates for statement in program.statements)
        self.made_by: dict[str, int] = {}
        """Name of a node -> index of the statement that made it."""
        self.outputs: list[list[int]] = []
        """Of each prefix: positions in the result."""

    def __call__(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        names: dict[str, Any] = {"torch": torch, "device": torch.device, "inf": torch.inf, "nan": torch.nan}
        names |= {name: to_fun(value) for name, value in zip(self.program.arguments, arguments, strict=True)}
        result: list[torch.Tensor] = []
        taken: dict[str, list[int]] = {}
        self._note_nodes(_PLACEHOLDER)
        for statement, code in zip(self.program.statements, self.codes, strict=True):
            try:
                exec(code, names)
            except Exception as error:  # whatever an operator raises on fake tensors: the statement is what matters
                reason = str(error).strip().splitlines() or [type(error).__name__]
                raise MalformedGraphError(
                    f"{self.where}: {statement.lines[0]!r} does not run on fake tensors ({reason[0][:120]}); "
                    "leave the graph out"
                ) from error
            wanted = list(self._wanted(statement))
            if statement.mutates:  # a write in place may change every value: look at all of them again
                taken = {}
            for name in wanted:
                if name not in taken:
                    tensors = [value for value in pytree.tree_leaves(names[name]) if isinstance(value, torch.Tensor)]
                    taken[name] = list(range(len(result), len(result) + len(tensors)))
                    result += [from_fun(value) for value in tensors]  # type: ignore[misc]
            self.outputs.append([position for name in wanted for position in taken[name]])
            self._note_nodes(statement.index)
        return result

    def _wanted(self, statement: Statement) -> Iterator[str]:
        """Names whose values the prefix that ends with the statement must give: its own value last."""
        if self.has_mutations:  # the caller sees what was written into an argument
            yield from self.program.arguments
        for name, made_at in self.program.definitions.items():
            uses = self.program.uses.get(name, ())
            if made_at < statement.index and uses and uses[-1] > statement.index:
                yield name
        if statement.target is not None:
            yield statement.target

    def _note_nodes(self, index: int) -> None:
        tracing = get_proxy_mode()
        assert tracing is not None, "statements run under make_fx only"
        for node in reversed(tracing.tracer.graph.nodes):
            if node.name in self.made_by:
                break
            self.made_by[node.name] = index


def _compiled(graph: Graph, statements: Iterable[Statement], device: str) -> Iterator[Any]:
    """Code of each statement, captured devices mapped as load_graph_module() does."""
    on_cuda = "cuda" in graph.model_source or any(spec.device.startswith("cuda") for spec in graph.specs.values())
    for statement in statements:
        tree = parse_source("\n".join(statement.lines))
        tree = map_devices(tree, captured="cuda" if on_cuda else "cpu", target=device)
        yield compile(tree, f"{graph.name}/{MODEL_FILE}", "exec")


def _empty(graph: Graph, name: str, device: str) -> torch.Tensor:
    spec = graph.specs[name]
    return torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device=device)


def _producers(outputs: Iterable[torch.fx.Node], is_outside: Any) -> Iterator[torch.fx.Node]:
    """The outputs and everything that they are made from, as far as it is not outside."""
    seen: set[torch.fx.Node] = set()
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node not in seen and not is_outside(node):
            seen.add(node)
            waiting += node.all_input_nodes
            yield node


def _computed(
    made_by: dict[torch.fx.Node, int], outputs: Iterable[torch.fx.Node], index: int
) -> Iterator[torch.fx.Node]:
    """Operators of statement `index` that its outputs need and that are more than views."""
    return filter(_computes, _producers(outputs, lambda node: made_by[node] != index))


def _computes(node: torch.fx.Node) -> bool:
    if node.target is torch.ops.aten.clone.default:  # a dropout that is off becomes a clone, which Inductor removes
        return node.meta["val"].stride() != node.args[0].meta["val"].stride()  # type: ignore[union-attr]
    return isinstance(node.target, torch._ops.OpOverload) and not node.target.is_view


def _is_library_call(node: torch.fx.Node) -> bool:
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    return name in _LIBRARY or name.startswith(_ATTENTION)
