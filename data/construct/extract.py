"""A model -> the torch-level graphs that Dynamo sees when it runs: capture() returns them, extract() writes them.

Parameters and buffers become inputs of the graph, as in PassNet's format, because Dynamo inlines modules. Every graph
is run on the real activations and the statistics of each value are kept, so that a slice's inputs can be described by
what they really were. Nothing is cut here, and how a graph is written is full_graph.py's and writer.py's business.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from data.construct.metas import ValueRecord

MAX_LITERAL_SIZE = 64
"""Small constants and integer buffers, below this many elements, keep their content (upstream's limit)."""
RECOMPILE_LIMIT = 64
"""Graphs of one piece of code. A layer with a graph break inside is compiled once a layer; Dynamo's own limit is 8."""


@dataclass
class CapturedGraph:
    """One FX graph with what its values were in its first run."""

    graph: torch.fx.Graph
    stats: dict[torch.fx.Node, ValueRecord] = field(default_factory=dict)
    """Of every node that is a tensor, placeholders too."""
    scalars: dict[torch.fx.Node, Any] = field(default_factory=dict)
    """Of every node that is a number or a torch.Size: what a symbolic size was."""
    literals: dict[torch.fx.Node, list[Any]] = field(default_factory=dict)
    """Flat content of small constants and of small integer placeholders."""


def capture(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> list[CapturedGraph]:
    """Run the module once, in evaluation mode and without gradients; its graphs in the order of first use."""
    captured: list[CapturedGraph] = []
    torch._dynamo.reset()
    with torch.no_grad(), _capture_settings():
        compiled = torch.compile(module.eval(), backend=_recording_backend(captured.append), dynamic=False)
        compiled(*args, **(kwargs or {}))
    return captured


def extract(
    model: Any = None,
    *,
    name: str,
    out: str | Path,
    dynamic: bool = False,
    check: bool = True,
    overwrite: bool = False,
) -> Any:
    """Wrap a model so that its graphs are written to out/name/graph_<i>/ when each first runs.

    `extract(model, name=..., out=...)`, `extract(name=..., out=...)(model)`, or `@extract(name=..., out=...)` above a
    function or a class of modules (each instance is wrapped then). With dynamic, sizes that Dynamo kept symbolic are
    recorded in input_tensor_constraints.py; without, each new shape of the inputs gives graphs of its own. A graph that
    breaks one of PassNet's five constraints is not written; rejected.json and the log say which and why. `check=False`
    writes whatever can be written. Raises FileExistsError if out/name holds graphs, unless overwrite removes them.
    """
    settings: dict[str, Any] = {
        "name": name, "out": out, "dynamic": dynamic, "check": check, "overwrite": overwrite
    }  # fmt: skip
    if model is None:
        return functools.partial(extract, **settings)
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        kind: Callable[..., Any] = model

        @functools.wraps(kind, updated=())
        def wrapped_instance(*args: Any, **kwargs: Any) -> Extraction:
            return Extraction(kind(*args, **kwargs), **settings)

        return wrapped_instance
    if isinstance(model, type) or not callable(model):
        raise TypeError(f"{model!r} is neither a module, a function nor a class of modules; extract wraps those")
    return Extraction(model, **settings)


class Extraction:
    """Stands for a model: calls return what the model returns, and its graphs are written as each first runs."""

    def __init__(
        self, model: Callable[..., Any], *, name: str, out: str | Path, dynamic: bool, check: bool, overwrite: bool
    ) -> None:
        from data.construct.graph_folders import GraphFolders  # its writer needs the records of this module

        self.model = model
        self.folders = GraphFolders(out, name, dynamic=dynamic, check=check, overwrite=overwrite)
        backend = _recording_backend(lambda _entry: None, self.folders.add)
        self._compiled = torch.compile(model, backend=backend, dynamic=dynamic)

    @property
    def graph_dirs(self) -> tuple[Path, ...]:
        """The folders written so far."""
        return tuple(self.folders.written)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _capture_settings():
            return self._compiled(*args, **kwargs)

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "model":  # not set yet: the instance is being copied
            raise AttributeError(attribute)
        return getattr(self.model, attribute)


@contextlib.contextmanager
def _capture_settings() -> Any:
    """Every layer may have its graphs, recurrent layers are one operator, and numbers with a point are literals."""
    import torch._dynamo as dynamo

    with dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT, allow_rnn=True, specialize_float=True):
        yield


def _recording_backend(
    compiled: Callable[[CapturedGraph], None], first_run: Callable[[CapturedGraph], None] | None = None
) -> Callable[..., Any]:
    """A backend for torch.compile that runs the graph as it is; `compiled` and `first_run` are told of each."""

    def backend(graph_module: torch.fx.GraphModule, _example_inputs: Sequence[Any]) -> Any:
        entry = CapturedGraph(graph_module.graph)
        compiled(entry)
        pending = [_Recorder(graph_module, entry)]

        def run(*values: Any) -> Any:
            if not pending:
                return graph_module(*values)
            result = pending[0].run(*values)
            pending.clear()
            if first_run is not None:
                first_run(entry)
            return result

        return run

    return backend


class _Recorder(torch.fx.Interpreter):
    """Runs a graph and notes each value at the moment it is made, before an in-place operator may change it."""

    def __init__(self, graph_module: torch.fx.GraphModule, entry: CapturedGraph) -> None:
        super().__init__(graph_module)
        self.entry = entry

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            # values inside vmap are wrapped, and have no content of their own
            if not torch._C._functorch.is_functorch_wrapped_tensor(value) and value.layout is torch.strided:
                self.entry.stats[n] = measure(value)
                self._keep_content(n, value)
        elif isinstance(value, bool | int | float | torch.Size):
            self.entry.scalars[n] = value
        return value

    def _keep_content(self, n: torch.fx.Node, value: torch.Tensor) -> None:
        discrete = not value.is_floating_point() and not value.is_complex()
        if value.numel() < MAX_LITERAL_SIZE and (n.op == "get_attr" or (n.op == "placeholder" and discrete)):
            self.entry.literals[n] = value.detach().flatten().tolist()


def measure(value: torch.Tensor) -> ValueRecord:
    """Shape, dtype and statistics of one tensor."""
    about: dict[str, Any] = {"shape": tuple(value.shape), "dtype": str(value.dtype)}
    if value.is_floating_point():
        wide = value.detach().to(torch.float64)
        std = float(wide.std()) if wide.numel() > 1 else 0.0
        return ValueRecord(**about, mean=float(wide.mean()) if wide.numel() else math.nan, std=std)
    if value.dtype is torch.bool or value.is_complex() or value.numel() == 0:
        return ValueRecord(**about)
    return ValueRecord(**about, min_val=int(value.min()), max_val=int(value.max()))
