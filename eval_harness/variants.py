"""Variants of a graph: the same operators at a shape or a dtype outside the task. Trusted side; nothing is computed.

A variant changes one size wherever it stands in the arguments (a batch, a sequence, a width), or all float dtypes
together. It counts only if every operator still runs on fake tensors and the traced graph is the same but for sizes.
model.py stays as it is where it can; where a size is written in it (view, layer_norm), the literal follows.
Not here: whether eager runs it on real values, and what a candidate makes of it (judge/unseen.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from data.fake_tensors import quiet_refusals
from data.graph import Graph, TensorSpec
from data.inputs import draw_inputs
from eval_harness.graph_ir import IRGraph
from eval_harness.graph_values import map_refs
from eval_harness.ir_execution import build_module
from eval_harness.tracing import UNKNOWN, TensorMeta, TracedGraph, run_on_fake_tensors, trace_graph
from eval_harness.variant_changes import (
    MULTIPLES,
    Change,
    Places,
    needs_growth,
    possible_sizes,
    proposals,
    rebuilt,
    resized,
    with_literals,
)

FLOAT_DTYPES = ("torch.float32", "torch.bfloat16", "torch.float16")
MAX_TRIES = 24
"""Fake runs spent on one draw of variants."""
KEPT_FAILURES = 256
KEPT_WITH_LITERALS = 3
GROWING_SHARE = 0.5
_CASTS = frozenset({"float", "half", "bfloat16", "double"})
ALWAYS_ALLOWED_BYTES = 1 << 20
LARGE_BYTES = 64 << 20
LARGE_GROWTH = 1.25
"""What graphs with more bytes of inputs may grow by; others may double."""


@dataclass(frozen=True)
class Variant:
    """A graph outside the task, ready to be matched."""

    graph: Graph
    traced: TracedGraph
    text: str
    """For a reader: "in_0 (2, 64) -> (2, 17)", or "float32 -> bfloat16"."""
    is_dtype: bool = False


@dataclass
class VariantSource:
    """Draws variants of one graph; keeps what was learnt, so that later draws cost a fake run each."""

    traced: TracedGraph
    _steps: dict[Change, int] = field(default_factory=dict)
    """Changes that worked, with the step of sizes at which they did."""
    _failed: set[tuple[Change, int]] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)
    _with_literals: dict[Change, list[Variant]] = field(default_factory=dict)
    """Variants of another model.py, which is traced anew: a few sizes each are enough."""

    def draw_shapes(self, generator: random.Random) -> Iterator[Variant]:
        """Variants by shape in secret order, each of another change; ends when nothing is left to try."""
        changes = list(proposals(self.traced.graph))
        # literals that follow make a graph that fewer patterns fit: tried after the others
        order = sorted(changes, key=lambda change: (change.literals != "kept", generator.random()))
        tries = MAX_TRIES
        # a kernel that is bounded by the task's own sizes is right below them: the first variant is larger
        must_grow = True
        used: set[Places] = set()
        for change in order:
            known = self._steps.get(change)
            for step in MULTIPLES if known is None else (known,):
                if tries <= 0 or change.places in used or (change, step) in self._failed:
                    continue
                sizes = self._affordable_sizes(change, step, grows=must_grow)
                if not sizes:
                    continue
                tries -= 1
                variant = self._with_size(change, generator.choice(sizes), generator)
                if variant is not None:
                    self._steps[change] = step
                    used.add(change.places)
                    yield variant
                    must_grow = generator.random() < GROWING_SHARE
                elif known is None:
                    self._failed.add((change, step))

    def _affordable_sizes(self, change: Change, step: int, *, grows: bool) -> list[int]:
        specs = list(self.traced.graph.specs.values())
        return [
            size
            for size in possible_sizes(change.size, step, grows=grows or needs_growth(self.traced.graph))
            if _is_affordable(specs, [resized(spec, change, size) for spec in specs])
        ]

    def draw_dtypes(self, generator: random.Random) -> Iterator[Variant]:
        """Variants by dtype in secret order."""
        present = {spec.dtype for spec in self.traced.graph.specs.values()}
        floats = [dtype for dtype in FLOAT_DTYPES if dtype in present]
        if len(floats) != 1 or _names_a_float_dtype(self.traced.ir):
            # mixed precision, or a cast whose dtype was the model's own when it was captured: what would be another
            # graph's is a guess
            return
        for dtype in generator.sample(FLOAT_DTYPES, len(FLOAT_DTYPES)):
            if dtype not in present and (variant := self._with_dtype(floats[0], dtype)) is not None:
                yield variant

    def refuse(self, variant: Variant) -> None:
        """Eager does not run it: never again."""
        if len(self._refused) < KEPT_FAILURES:
            self._refused.add(variant.graph.content_hash)

    def _with_size(self, change: Change, size: int, generator: random.Random) -> Variant | None:
        graph = self.traced.graph
        kept = self._with_literals.setdefault(change, [])
        if len(kept) >= KEPT_WITH_LITERALS:
            return generator.choice(kept)
        specs = [resized(spec, change, size) for spec in graph.specs.values()]
        source = graph.model_source
        if change.literals != "kept":
            source = with_literals(source, change, size)
            if source == graph.model_source:
                return None
        shown = [
            f"{old.name} {old.shape} -> {new.shape}"
            for old, new in zip(graph.specs.values(), specs, strict=True)
            if old.shape != new.shape
        ]
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        variant = self._checked(rebuilt(graph, specs, source), ", ".join(shown[:3]) + more, is_dtype=False)
        if variant is not None and change.literals != "kept":
            kept.append(variant)
        return variant

    def _with_dtype(self, old: str, new: str) -> Variant | None:
        graph = self.traced.graph
        specs = [
            spec.model_copy(update={"dtype": new}) if spec.dtype == old else spec for spec in graph.specs.values()
        ]
        text = f"{old.removeprefix('torch.')} -> {new.removeprefix('torch.')}"
        return self._checked(rebuilt(graph, specs, graph.model_source), text, is_dtype=True)

    def _checked(self, graph: Graph, text: str, *, is_dtype: bool) -> Variant | None:
        if graph.content_hash in self._refused:
            return None
        try:
            with quiet_refusals():
                if graph.model_source == self.traced.graph.model_source:
                    traced = run_on_fake_tensors(graph, self.traced.ir)
                else:
                    traced = trace_graph(graph)
        except Exception:
            # whatever a changed size does to model.py's own code: it is no variant
            return None
        is_same = _is_same_but_for_integers(traced.ir, self.traced.ir) and _unknown(traced) == _unknown(self.traced)
        return Variant(graph, traced, text, is_dtype) if is_same and not _is_degenerate(traced) else None


def runs_on_cpu(variant: Variant) -> bool:
    """Whether eager runs a variant on real values, where fake tensors cannot tell: indices may leave a table, and on a
    GPU that costs the process. True where nothing is indexed; False for large graphs, which are not worth a CPU's time.
    """
    graph = variant.graph
    if not needs_growth(graph) and not _unknown(variant.traced):
        return True
    if _num_bytes(list(graph.specs.values())) > LARGE_BYTES:
        return False
    module = build_module(variant.traced.ir, {}, device=torch.device("cpu"))
    try:
        with torch.no_grad():
            module(*draw_inputs(graph, seed=0).values())
    except Exception:
        # whatever eager does not do at this size
        return False
    return True


def _is_affordable(old: Sequence[TensorSpec], new: Sequence[TensorSpec]) -> bool:
    before, after = _num_bytes(old), _num_bytes(new)
    return after <= max((LARGE_GROWTH if before > LARGE_BYTES else 2) * before, ALWAYS_ALLOWED_BYTES)


def _num_bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(spec.num_elements * getattr(torch, spec.dtype.removeprefix("torch.")).itemsize for spec in specs)


def _is_same_but_for_integers(ours: IRGraph, theirs: IRGraph) -> bool:
    if ours is theirs:
        return True
    return len(ours.nodes) == len(theirs.nodes) and all(
        (a.op, a.target, _without_integers(a.args), _without_integers(dict(a.kwargs)))
        == (b.op, b.target, _without_integers(b.args), _without_integers(dict(b.kwargs)))
        for a, b in zip(ours.nodes, theirs.nodes, strict=True)
    )


def _without_integers(value: Any) -> str:
    # by text: slices and dtypes have no order, and 1 == True
    return repr(map_refs(value, lambda ref: ref, lambda literal: "int" if type(literal) is int else literal))


def _names_a_float_dtype(ir: IRGraph) -> bool:
    found = []

    def look(literal: Any) -> Any:
        found.append(isinstance(literal, torch.dtype) and literal.is_floating_point)
        return literal

    for node in ir.calls:
        found.append(node.op == "call_method" and node.target in _CASTS)
        map_refs((node.args, dict(node.kwargs)), lambda ref: ref, look)
    return any(found)


def _unknown(traced: TracedGraph) -> set[str]:
    return {name for name, value in traced.values.items() if value is UNKNOWN}


def _is_degenerate(traced: TracedGraph) -> bool:
    """A tensor without elements: nothing would be compared."""
    return any(isinstance(value, TensorMeta) and 0 in value.shape for value in traced.values.values())
