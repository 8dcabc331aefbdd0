"""Whether one graph may become a part of a task: it is loaded and run a few times on the CPU, within bounds.

What a graph does wrong is a reason in one line, never an exception. Not here: whether a good pass can be told from a
bad one on it (screening), or how long it takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from data.graph import Graph, MalformedGraphError, TensorSpec
from data.inputs import InputMode, draw_inputs, torch_dtype
from data.model_check import load_graph_module

CHECK_SEEDS = (7, 8)
TIME_LIMIT_S = 5.0
MAX_BYTES = 64 << 20
"""Of the arguments, and of everything that the operators of one run make."""

Outputs = tuple[torch.Tensor, ...]


class _RefusedError(Exception):
    """The reason, raised from inside a run."""


def check_instance(graph: Graph, *, time_limit_s: float = TIME_LIMIT_S, max_bytes: int = MAX_BYTES) -> str | None:
    """Why the graph is left out, in one line, or None if it may stay. Never raises for a fault of the graph.

    It must load under the allow-list, run with inputs of both modes and two seeds without making an empty tensor, give
    the same bits twice, and have outputs that are finite and, with robust inputs, neither constant nor the same for
    both seeds. The limits are watched between operators: a single operator may overrun them.
    """
    try:
        _check_arguments(graph.specs.values(), max_bytes)
        module = load_graph_module(graph, "cpu")
        with torch.no_grad():
            _check_runs(graph, module, _Watch(time_limit_s, max_bytes))
    except (_RefusedError, MalformedGraphError) as error:
        return _first_line(error)
    except Exception as error:  # the graph's own code ran: anything may come out of it
        return f"does not run: {type(error).__name__}: {_first_line(error)}"
    return None


def _check_arguments(specs: Iterable[TensorSpec], max_bytes: int) -> None:
    num_bytes = 0
    for spec in specs:
        if spec.num_elements == 0:
            raise _RefusedError(f"{spec.name} has shape {list(spec.shape)}: no elements")
        num_bytes += spec.num_elements * torch_dtype(spec.dtype).itemsize
    if num_bytes > max_bytes:
        raise _RefusedError(f"its arguments take {num_bytes / 2**20:.0f} MiB, more than {max_bytes / 2**20:.0f}")


def _check_runs(graph: Graph, module: torch.nn.Module, watch: _Watch) -> None:
    def run(inputs: Mapping[str, torch.Tensor], mode: InputMode) -> Outputs:
        watch.check_time()
        # copies: in-place operators write into the arguments
        outputs = module(**{name: value.clone() for name, value in inputs.items()})
        _check_outputs(outputs, mode)
        return outputs

    inputs, others = (draw_inputs(graph, seed=seed, mode="robust") for seed in CHECK_SEEDS)
    with watch:
        first = run(inputs, "robust")
    again, other = run(inputs, "robust"), run(others, "robust")
    for index, (one, same, second) in enumerate(zip(first, again, other, strict=True)):
        if not torch.equal(one, same):
            raise _RefusedError(f"output {index} differs between two runs with the same inputs")
        if torch.equal(one, second):
            raise _RefusedError(f"output {index} does not vary with robust inputs")
        if one.numel() > 1 and _is_constant(one):
            raise _RefusedError(f"output {index} is one value everywhere with robust inputs")
    for seed in CHECK_SEEDS:
        run(draw_inputs(graph, seed=seed, mode="passnet"), "passnet")
    watch.check_time()


def _check_outputs(outputs: Any, mode: InputMode) -> None:
    if not isinstance(outputs, tuple) or not outputs:
        raise _RefusedError("forward returns no tuple of tensors")
    for index, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            raise _RefusedError(f"output {index} is no tensor but {type(output).__name__}")
        if output.numel() == 0:
            raise _RefusedError(f"output {index} has shape {list(output.shape)}: no elements")
        if not bool(torch.isfinite(output).all()):
            raise _RefusedError(f"output {index} is not finite with {mode} inputs")


def _is_constant(output: torch.Tensor) -> bool:
    values = torch.view_as_real(output) if output.is_complex() else output
    low, high = torch.aminmax(values)
    return bool(low == high)


class _Watch(TorchFunctionMode):
    """Looks at each value of a run as it is made."""

    def __init__(self, time_limit_s: float, max_bytes: int) -> None:
        super().__init__()
        self.time_limit_s, self.max_bytes = time_limit_s, max_bytes
        self.deadline = time.monotonic() + time_limit_s
        self.storages: dict[int, int] = {}
        self.num_bytes = 0

    def check_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise _RefusedError(f"takes longer than {self.time_limit_s:g} s")

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.check_time()
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                self._count(func, value)
        return result

    def _count(self, func: Any, value: torch.Tensor) -> None:
        if value.numel() == 0:
            name = getattr(func, "__name__", str(func))
            raise _RefusedError(f"{name} makes a tensor of shape {list(value.shape)}: no elements")
        storage = value.untyped_storage()
        # a view has its base's storage; an address that is used again counts once
        self.num_bytes += max(storage.nbytes() - self.storages.get(storage.data_ptr(), 0), 0)
        self.storages[storage.data_ptr()] = max(storage.nbytes(), self.storages.get(storage.data_ptr(), 0))
        if self.num_bytes > self.max_bytes:
            raise _RefusedError(f"one run makes more than {self.max_bytes / 2**20:.0f} MiB of tensors")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
