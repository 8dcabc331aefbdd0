"""A graph through torch.compile: with its guards, as users call it, or without, for a figure like for like.

how:
  "substitute"        torch.compile(backend=...) that runs a given callable instead of what was captured
  "eager_guarded"     torch.compile(backend="eager"): eager behind the same guards
  "inductor"          what TorchInductor compiled, called directly: no guards
  "inductor_guarded"  torch.compile(backend="inductor"), mode default
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.config


def compile_callable(
    module: torch.nn.Module, arguments: Sequence[str], *, how: str, substitute: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A callable over forward's arguments, compiled at its first call."""
    # Inductor's pool of compiling subprocesses does not survive in a confined process
    torch._inductor.config.compile_threads = 1
    if how == "eager_guarded":
        return torch.compile(module, backend="eager", dynamic=False)
    if how == "inductor_guarded":
        return torch.compile(module, backend="inductor", dynamic=False)
    if how == "substitute":
        assert substitute is not None
        return torch.compile(module, backend=_Substitute(substitute, arguments), dynamic=False)
    if how == "inductor":
        return _WithoutGuards(module, arguments)
    raise ValueError(f"unknown way to compile: {how}")


class _Substitute:
    """A torch.compile backend that runs another callable over the same arguments."""

    def __init__(self, target: Callable[..., Any], arguments: Sequence[str]) -> None:
        self._target = target
        self._arguments = list(arguments)

    def __call__(self, captured: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        names = _argument_names(captured)
        target, positions = self._target, [self._arguments.index(name) for name in names]
        width = len(self._arguments)
        if positions == list(range(width)):
            return target

        def run(*present: Any) -> Any:
            full: list[Any] = [None] * width
            for position, value in zip(positions, present, strict=True):
                full[position] = value
            return target(*full)

        return run


class _WithoutGuards:
    """TorchInductor's output for one set of shapes, called directly."""

    def __init__(self, module: torch.nn.Module, arguments: Sequence[str]) -> None:
        self._module = module
        self._arguments = list(arguments)
        self._compiled: Callable[..., Any] | None = None
        self._positions: list[int] = []

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        if self._compiled is None:
            self._compile(inputs)
        assert self._compiled is not None
        return tuple(self._compiled(*[inputs[position] for position in self._positions]))

    def _compile(self, inputs: Sequence[torch.Tensor]) -> None:
        from torch._inductor.compile_fx import compile_fx

        def backend(captured: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            if self._compiled is not None:
                raise RuntimeError("the graph breaks under torch.compile; it has no single compiled form")
            self._positions = [self._arguments.index(name) for name in _argument_names(captured)]
            compiled: Any = compile_fx(captured, list(example_inputs))
            self._compiled = compiled
            return compiled

        torch._dynamo.reset()
        torch.compile(self._module, backend=backend, dynamic=False)(*inputs)


def _argument_names(captured: torch.fx.GraphModule) -> list[str]:
    """Names of forward's arguments behind a captured graph's placeholders (Dynamo calls them L_<name>_)."""
    names = []
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            match = re.fullmatch(r"[Ll]_(.+?)_?", str(node.target))
            names.append(match.group(1) if match else str(node.target))
    return names
