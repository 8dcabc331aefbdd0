"""A rewritten graph, or a baseline, behind the validator's Runner protocol: a batch is a call of the confined worker.

Batches arrive as tensors in the judge; the graph of that many rows is the original with its sizes changed, matched by
the same rules. Nothing of the candidate runs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from data.graph import Graph, MalformedGraphError
from eval_harness.batch_invariance.axis_reference import ReferenceRefused
from eval_harness.batch_invariance.axis_resize import Reading, checked_resize, resized_by
from eval_harness.batch_invariance.row_axis import BatchLayout
from eval_harness.batch_invariance.runner import CallError
from eval_harness.comparison import OutputMeta
from eval_harness.errors import ReferenceFailedError
from eval_harness.judge.buffers import InputSet, output_slots, outputs_bytes
from eval_harness.judge.correctness import GraphFailure
from eval_harness.judge.graph_loading import load_baseline, load_rewritten
from eval_harness.judge.session import Session
from eval_harness.judge.workers import Worker, WorkerFailure
from eval_harness.rewriting import InvalidPatternError, Rewrite, rewrite
from eval_harness.tracing import TensorMeta, TracedGraph, TraceError, trace_graph


@dataclass
class _Sized:
    """The graph with one number of rows."""

    traced: TracedGraph
    rewritten: Rewrite | None
    outputs: list[TensorMeta]


@dataclass
class _Sizes:
    """What is known of the graph at other numbers of rows; shared by a runner and its fresh ones."""

    graph: Graph
    layout: BatchLayout
    known: dict[int, _Sized | str] = field(default_factory=dict)
    """Rows -> the graph, or why there is none."""
    same_rows: dict[int, torch.Tensor] = field(default_factory=dict)
    """Input that may be batched or shared -> the one row that all rows of it get."""
    reading: Reading | None = None
    """Of model.py's integers: found and checked at the first other number of rows, taken for all."""


class GraphRunner:
    """One graph in a session's candidate process."""

    def __init__(
        self, session: Session, graph: Graph, layout: BatchLayout, *, baseline: str | None, sizes: _Sizes | None = None
    ) -> None:
        self._session, self._baseline = session, baseline
        self._sizes = sizes or _Sizes(graph, layout)
        self._loaded: tuple[Worker, _Sized] | None = None

    def run(self, inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        """Outputs on the CPU. Raises CallError."""
        layout = self._sizes.layout
        axis, tensor = next((axis, x) for axis, x in zip(layout.inputs, inputs, strict=True) if axis is not None)
        num_rows = axis.size(tensor)
        sized = self._sized(num_rows)
        inputs = self._with_same_rows(inputs, num_rows)
        try:
            self._load(sized)
            return self._call(sized, inputs)
        except GraphFailure as failure:
            if failure.violations:
                raise
            raise CallError(failure.message, is_fatal=self._is_lost()) from None
        except WorkerFailure as failure:
            raise CallError(failure.message, is_fatal=self._is_lost()) from None
        except ReferenceFailedError as error:
            raise CallError(str(error)) from None

    def _with_same_rows(self, inputs: Sequence[Any], num_rows: int) -> list[Any]:
        """Inputs of which one row does not tell whether they are batched: a pass may rightly read their first row."""
        made = list(inputs)
        for index in self._sizes.layout.ambiguous:
            axis = self._sizes.layout.inputs[index]
            assert axis is not None
            row = self._sizes.same_rows.setdefault(index, axis.select(made[index], [0]))
            made[index] = axis.select(row, [0] * num_rows)
        return made

    def fresh(self) -> GraphRunner:
        """The same in a new process; the old one ends."""
        self._session.drop_candidate()
        return GraphRunner(
            self._session, self._sizes.graph, self._sizes.layout, baseline=self._baseline, sizes=self._sizes
        )

    def close(self) -> None:
        self._loaded = None

    def _is_lost(self) -> bool:
        return self._loaded is not None and not self._loaded[0].alive

    def _sized(self, num_rows: int) -> _Sized:
        known = self._sizes.known
        if num_rows not in known:
            known[num_rows] = self._make(num_rows)
        found = known[num_rows]
        if isinstance(found, str):
            raise CallError(found)
        return found

    def _make(self, num_rows: int) -> _Sized | str:
        try:
            graph = self._resized(num_rows)
            if graph is None:
                return f"the graph cannot be given {num_rows} rows"
            traced = trace_graph(graph)
            rewritten = None if self._baseline is not None else rewrite(traced, self._session.rules)
        except (MalformedGraphError, TraceError, ReferenceRefused, InvalidPatternError) as error:
            return f"{num_rows} rows: {' '.join(str(error).split())[:200]}"
        if rewritten is not None and (not rewritten.num_matches or rewritten.violations):
            return f"no rule matches the graph with {num_rows} rows"
        returned = traced.values[traced.ir.output.name]
        outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if not all(isinstance(output, TensorMeta) for output in outputs):
            return "shapes of outputs depend on values"
        return _Sized(traced, rewritten, outputs)

    def _resized(self, num_rows: int) -> Graph | None:
        sizes = self._sizes
        if num_rows == sizes.layout.size:
            return sizes.graph
        if sizes.reading is not None:
            return resized_by(sizes.graph, sizes.layout, sizes.reading, num_rows)
        found = checked_resize(sizes.graph, sizes.layout, num_rows)
        if found is None:
            return None
        sizes.reading = found.reading
        return found.graph

    def _load(self, sized: _Sized) -> None:
        worker = self._session.candidate
        if self._loaded == (worker, sized):
            return
        if sized.rewritten is not None:
            load_rewritten(self._session, sized.traced, sized.rewritten)
        else:
            load_baseline(self._session, sized.traced, self._baseline or "eager")
        self._loaded = (worker, sized)

    def _call(self, sized: _Sized, inputs: Sequence[Any]) -> list[torch.Tensor]:
        session, graph = self._session, sized.traced.graph
        timeout_s = min(session.protocol.graph_timeout_s, max(session.seconds_left(), 1.0))
        worker = session.candidate
        metas = [OutputMeta(meta.shape, str(meta.dtype), meta.stride, session.bench.device) for meta in sized.outputs]
        buffers = InputSet(graph, outputs_bytes(metas))
        try:
            buffers.attach(worker, timeout_s=timeout_s)
            buffers.write(dict(zip(graph.arguments, inputs, strict=True)))
            worker.ask("load_set", timeout_s=timeout_s, **buffers.load_message(fresh=True))
            poison = [outputs_bytes([meta]) for meta in metas]
            answer = worker.ask("call", timeout_s=timeout_s, set=0, poison_bytes=poison, special="")
            said = [(tuple(output.get("shape", ())), output.get("dtype")) for output in answer["outputs"]]
            if said != [(meta.shape, meta.dtype) for meta in metas]:
                raise CallError(f"outputs are {said}, and eager's {[(meta.shape, meta.dtype) for meta in metas]}")
            items, slots = output_slots(metas, 0)
            worker.ask("deliver", timeout_s=timeout_s, items=items)
            return [buffers.read_output(worker, slot) for slot in slots]
        finally:
            buffers.close()
