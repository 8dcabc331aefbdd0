"""A graph as a function that can be asked: float64 on the CPU, from the reference alone, nothing of a candidate.

model.py goes through the allow-list and the tracer as everywhere; what runs is the traced graph with every narrow float
type widened. Draws are the values that it is asked with, and those that rows are changed to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from data.graph import Graph, MalformedGraphError, TensorSpec
from data.inputs import draw_inputs
from data.model_check import load_graph_module
from eval_harness.graph_ir import IRFormatError, IRGraph
from eval_harness.graph_values import map_refs
from eval_harness.ir_execution import build_module
from eval_harness.oracle import to_float64
from eval_harness.tracing import TraceError, trace_callable
from eval_harness.variant_changes import rebuilt

LARGE = 1e3
"""A row that is so much larger shows a maximum, a norm or a scale that is taken over all rows."""
KINDS = ("other", "large", "nan")
"""What a row is changed to: another draw; large floats or the largest integers; NaN or the smallest integers."""


MARKED_SHARE = 0.2
"""Of the elements that become an integer which the graph compares with."""
KEPT_SHARE = 0.25
"""Of the elements of a two-valued integer tensor that stay as they are."""
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_MASKED = 1e20
"""Values beyond stand for a mask and say nothing of the size of the others."""


class ReferenceRefused(Exception):
    """The graph does not run as it was asked to; the message is one line for a reader."""


@dataclass(frozen=True)
class Reference:
    """A graph that is ready to be run."""

    graph: Graph
    ir: IRGraph
    """As traced, in the graph's own dtypes."""
    function: Callable[..., object]
    written: frozenset[int] = frozenset()
    """Arguments that a run changes in place: they are copied before it."""

    @classmethod
    def load(cls, graph: Graph) -> Reference:
        """Trace and widen. Raises ReferenceRefused: random numbers, data-dependent control flow, unknown calls."""
        try:
            module = load_graph_module(graph, "cuda")
            ir = trace_callable(module.forward, graph.arguments, source=graph.model_source)
            return cls(graph, ir, build_module(to_float64(ir), {}, device="cpu").forward)
        except (MalformedGraphError, TraceError, IRFormatError) as error:
            raise ReferenceRefused(_one_line(error)) from None

    def draw(self, graph: Graph, seed: int) -> list[torch.Tensor]:
        """Inputs in float64 at the shapes of `graph`: this one, or one with other sizes. Raises ReferenceRefused."""
        try:
            return [_widened(tensor) for tensor in draw_inputs(graph, seed=seed).values()]
        except (MalformedGraphError, RuntimeError) as error:
            raise ReferenceRefused(_one_line(error)) from None

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Outputs in the graph's order, None for what is no tensor; inputs are left alone. Raises ReferenceRefused."""
        given = [x.clone() if index in self.written else x for index, x in enumerate(inputs)]
        try:
            with torch.no_grad():
                found = self.function(*given)
        except Exception as error:
            # whatever an operator says to these sizes or values
            raise ReferenceRefused(_one_line(error)) from None
        outputs = found if isinstance(found, (tuple, list)) else (found,)
        return [value if isinstance(value, torch.Tensor) else None for value in outputs]

    def first_run(self, inputs: Sequence[torch.Tensor]) -> tuple[Reference, list[torch.Tensor | None]]:
        """A run that also finds out which arguments it writes, and refuses random numbers."""
        copies = [x.clone() for x in inputs]
        state = torch.random.get_rng_state()
        careful = Reference(self.graph, self.ir, self.function, frozenset(range(len(inputs))))
        outputs = careful.run(inputs)
        if not torch.equal(torch.random.get_rng_state(), state):
            torch.random.set_rng_state(state)
            raise ReferenceRefused("the graph draws random numbers")
        try:
            with torch.no_grad():
                self.function(*copies)
        except Exception as error:
            raise ReferenceRefused(_one_line(error)) from None
        pairs = enumerate(zip(copies, inputs, strict=True))
        written = frozenset(index for index, (copy, x) in pairs if not torch.equal(copy, x))
        return Reference(self.graph, self.ir, self.function, written), outputs


@dataclass(frozen=True)
class Draws:
    """Base inputs, and what rows of them are changed to."""

    base: list[torch.Tensor]
    others: dict[str, list[torch.Tensor]]
    """Kind (KINDS) -> whole inputs of that kind."""

    @classmethod
    def of(cls, reference: Reference, graph: Graph, seed: int, *, sparse: frozenset[int] = frozenset()) -> Draws:
        """sparse: float inputs of which half is 0 and half positive, as in a mask. Raises ReferenceRefused."""
        base, other = reference.draw(graph, seed), reference.draw(graph, seed + 1)
        generator = torch.Generator().manual_seed(seed)
        marks = _compared(reference.ir)
        for index, name in enumerate(graph.arguments):
            if graph.specs[name].data is None and base[index].dtype in _INTEGERS:
                base[index] = _with_marks(base[index], marks, graph.specs[name], generator)
        for index in sparse:
            base[index] = base[index].abs() * (torch.rand(base[index].shape, generator=generator) < 0.5)
        for index, name in enumerate(graph.arguments):
            if graph.specs[name].data is not None:
                # values that the graph was captured with may be indices: only they are known to be allowed
                order = torch.randperm(base[index].numel(), generator=generator)
                other[index] = base[index].flatten()[order].reshape(base[index].shape)
            elif not (base[index].is_floating_point() or base[index].is_complex()):
                other[index] = _other_integers(base[index], graph.specs[name], generator)
        large = [_extreme(x, old, largest=True) for x, old in zip(other, base, strict=True)]
        small = [_extreme(x, old, largest=False) for x, old in zip(other, base, strict=True)]
        return cls(base, {"other": other, "large": large, "nan": small})


def with_varied_integers(graph: Graph) -> Graph:
    """The graph with a range of two for integers that were all the same when it was captured; itself if it has none."""
    specs = [
        spec.model_copy(update={"max_val": int(spec.min_val) + 1})
        if spec.data is None and spec.min_val is not None and spec.min_val == spec.max_val and "int" in spec.dtype
        else spec
        for spec in graph.specs.values()
    ]
    return graph if specs == list(graph.specs.values()) else rebuilt(graph, specs, graph.model_source)


def _compared(ir: IRGraph) -> list[int]:
    """Integers that the graph compares with: a token that it looks for is hardly ever drawn by chance."""
    found: list[int] = []

    def look(literal: Any) -> Any:
        if type(literal) is int:
            found.append(literal)
        return literal

    for node in ir.calls:
        if node.short_target.strip("_") in ("eq", "ne", "lt", "le", "gt", "ge"):
            map_refs((node.args, dict(node.kwargs)), lambda ref: ref, look)
    return sorted(set(found))


def _with_marks(base: torch.Tensor, marks: list[int], spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    if spec.min_val is None or spec.max_val is None:
        return base
    for mark in marks:
        if spec.min_val <= mark <= spec.max_val:
            chosen = torch.rand(base.shape, generator=generator) < MARKED_SHARE
            base = base.masked_fill(chosen, mark)
    return base


def _other_integers(base: torch.Tensor, spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Other integers within the bounds. Of two values a quarter stays: if all change, equal ones stay equal."""
    kept = torch.rand(base.shape, generator=generator) < KEPT_SHARE
    if base.dtype is torch.bool:
        return base ^ ~kept
    low = int(spec.min_val) if spec.min_val is not None else 0
    span = (int(spec.max_val) if spec.max_val is not None else max(low, 1)) - low + 1  # as draw_inputs has it
    if span < 2:
        return base
    step = torch.randint(1, span, base.shape, generator=generator)
    step = step.masked_fill(kept, 0) if span == 2 else step
    return ((base.to(torch.int64) - low + step) % span + low).to(base.dtype)


def _extreme(other: torch.Tensor, base: torch.Tensor, *, largest: bool) -> torch.Tensor:
    if other.is_floating_point() or other.is_complex():
        return other * LARGE if largest else torch.full_like(other, torch.nan)
    if not other.numel():
        return other
    # seen values are allowed values, whatever they index
    values = torch.stack([other, base]).to(torch.int64)
    return torch.full_like(other, int(values.max() if largest else values.min()))


def same(first: torch.Tensor, second: torch.Tensor, *, rtol: float) -> torch.Tensor:
    """Where two results agree: by rtol of the value, or rtol / 1000 of the largest; NaN agrees with NaN; 0 is exact."""
    equal = first == second
    if not (first.is_floating_point() or first.is_complex()) or bool(equal.all()):
        return equal
    if not rtol:
        return equal | (first.isnan() & second.isnan())
    sizes = torch.nan_to_num(first.abs(), nan=0.0, posinf=0.0)
    largest = float(sizes.masked_fill_(sizes > _MASKED, 0.0).max())
    allowed = second.abs().mul_(rtol).add_(largest * rtol * 1e-3)
    # an infinity allows any difference, but only its equal is one
    close = ((first - second).abs() <= allowed) & torch.isfinite(second)
    return equal | close | (first.isnan() & second.isnan())


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
