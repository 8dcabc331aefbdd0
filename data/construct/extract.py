"""A model -> the torch-level graphs that Dynamo sees when it runs once. Nothing is cut or written here.

Parameters and buffers become inputs of the graph, as in PassNet's format, because Dynamo inlines modules. Every graph
is run on the real activations and the statistics of each value are kept, so that a slice's inputs can be described by
what they really were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class ValueStats:
    """What one tensor of the running model looked like, when it was made."""

    shape: tuple[int, ...]
    dtype: str
    """With the prefix: "torch.float32"."""
    mean: float | None
    """None for integers and booleans, as in the metas."""
    std: float | None
    min_val: int | None = None
    max_val: int | None = None
    """Of integers only: bounds for indices."""


@dataclass
class CapturedGraph:
    """One FX graph with what its values were."""

    graph: torch.fx.Graph
    stats: dict[torch.fx.Node, ValueStats] = field(default_factory=dict)
    """Of every node that is a tensor, placeholders too."""


def capture(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> list[CapturedGraph]:
    """Run the module once, in evaluation mode and without gradients; its graphs in the order of first use."""
    captured: list[CapturedGraph] = []

    def backend(graph_module: torch.fx.GraphModule, _example_inputs: Sequence[Any]) -> Any:
        entry = CapturedGraph(graph_module.graph)
        captured.append(entry)
        recorder = _Recorder(graph_module, entry)
        return lambda *values: recorder.run(*values)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module.eval(), backend=backend, dynamic=False)(*args, **(kwargs or {}))
    return captured


class _Recorder(torch.fx.Interpreter):
    """Runs a graph and notes each value at the moment it is made, before an in-place operator may change it."""

    def __init__(self, graph_module: torch.fx.GraphModule, entry: CapturedGraph) -> None:
        super().__init__(graph_module)
        self.entry = entry

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.entry.stats[n] = measure(value)
        return value


def measure(value: torch.Tensor) -> ValueStats:
    """Shape, dtype and statistics of one tensor."""
    shape, dtype = tuple(value.shape), str(value.dtype)
    if value.is_floating_point():
        wide = value.detach().to(torch.float64)
        std = float(wide.std()) if wide.numel() > 1 else 0.0
        return ValueStats(shape, dtype, float(wide.mean()) if wide.numel() else math.nan, std)
    if value.dtype is torch.bool or value.is_complex() or value.numel() == 0:
        return ValueStats(shape, dtype, None, None)
    return ValueStats(shape, dtype, None, None, int(value.min()), int(value.max()))
