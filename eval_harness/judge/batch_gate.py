"""The gate of batch invariance for one graph: is a row's result the same, bit for bit, whatever shares its batch?

    replaced parts (isolation.py) -> batch axis of each (batch_axis.py) -> batches in the candidate's process
    (validator.py, batch_runner.py) -> one record for the verdict

What counts is the replaced part alone. The whole graph is looked at too, for information: eager's operators around the
part may follow the batch. The static rules have spoken before (evaluate.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from data.graph import Graph
from data.inputs import draw_inputs
from eval_harness.batch_invariance.batch_axis import find_batch_layout
from eval_harness.batch_invariance.contexts import ContextPolicy
from eval_harness.batch_invariance.dynamic_result import DynamicOutcome, DynamicResult
from eval_harness.batch_invariance.isolation import isolated_parts
from eval_harness.batch_invariance.row_axis import BatchLayout
from eval_harness.batch_invariance.validator import validate
from eval_harness.judge.batch_runner import GraphRunner
from eval_harness.judge.session import Session
from eval_harness.rewriting import Rewrite
from eval_harness.tracing import TracedGraph

MAX_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}
"""Inputs of the largest batch: every batch crosses to the candidate's process."""
_WORST_FIRST = (
    DynamicOutcome.VARIANT, DynamicOutcome.NOT_DETERMINISTIC, DynamicOutcome.INVARIANT, DynamicOutcome.NOT_APPLICABLE,
)  # fmt: skip


@dataclass
class BatchReport:
    """What was found of one graph."""

    outcome: DynamicOutcome
    message: str
    feedback: str = ""
    parts: list[dict[str, Any]] = field(default_factory=list)
    """A record a replaced part: its operators, its batch layout, the validator's result."""
    whole_graph: dict[str, Any] | None = None
    """The same of the whole graph, where that is not the part itself; it decides nothing."""
    not_isolated: list[str] = field(default_factory=list)
    """Why other replaced parts could not be looked at."""
    seconds: float = 0.0

    @property
    def is_violation(self) -> bool:
        return self.outcome in (DynamicOutcome.VARIANT, DynamicOutcome.NOT_DETERMINISTIC)

    def as_dict(self) -> dict[str, Any]:
        return {
            "outcome": str(self.outcome),
            "message": self.message,
            "feedback": self.feedback,
            "parts": self.parts,
            "whole_graph": self.whole_graph,
            "not_isolated": self.not_isolated,
            "seconds": round(self.seconds, 3),
        }


def check_batch_invariance(
    session: Session, traced: TracedGraph, rewritten: Rewrite | None, baseline: str | None
) -> BatchReport:
    """The candidate's replaced parts, or a baseline's whole graph. The workers hold another graph afterwards.

    Raises GraphFailure for a violation of other rules, HarnessError.
    """
    started = time.monotonic()
    if rewritten is None:
        parts: list[Graph] = [traced.graph]
        reasons: list[str] = []
    else:
        parts, reasons = isolated_parts(traced, rewritten)
    confirm = session.protocol.confirm_batch_invariance and baseline is None
    results = [_check(session, part, traced.graph.family, baseline, confirm=confirm) for part in parts]
    whole = None
    if parts != [traced.graph] and session.protocol.confirm_batch_invariance:
        whole, _ = _check(session, traced.graph, traced.graph.family, baseline, confirm=False)
    report = _joined([record for record, _ in results], [result for _, result in results], reasons)
    report.whole_graph = whole
    report.seconds = time.monotonic() - started
    return report


def _check(
    session: Session, graph: Graph, family: str | None, baseline: str | None, *, confirm: bool
) -> tuple[dict[str, Any], DynamicResult]:
    record: dict[str, Any] = {"graph": graph.name, "layout": None}
    layouts = session.bench.batch_layouts
    layout = layouts.get(graph.content_hash)
    if layout is None:
        layout = layouts[graph.content_hash] = find_batch_layout(graph)
    if not isinstance(layout, BatchLayout):
        result = DynamicResult(DynamicOutcome.NOT_APPLICABLE, None, message=f"no batch axis: {layout.reason}")
        return record | result.as_dict(), result
    most = MAX_BYTES[session.bench.device.partition(":")[0]]
    policy = ContextPolicy.for_family(family)
    policy = replace(policy, max_bytes=most, far_bytes=min(policy.far_bytes, most // 8))
    inputs = list(draw_inputs(graph, seed=session.seed(), mode=session.protocol.inputs).values())
    runner = GraphRunner(session, graph, layout, baseline=baseline)
    result = validate(
        runner, inputs, layout, policy=policy, family=family, seed=session.seed() % (1 << 31), confirm=confirm
    )
    return record | {"layout": layout.describe()} | result.as_dict(), result


def _joined(records: Sequence[dict[str, Any]], results: Sequence[DynamicResult], reasons: Sequence[str]) -> BatchReport:
    """The worst of the parts speaks for the graph."""
    if not results:
        message = f"no replaced part can be looked at alone: {'; '.join(reasons)}"
        return BatchReport(DynamicOutcome.NOT_APPLICABLE, message, not_isolated=list(reasons))
    worst = min(results, key=lambda result: _WORST_FIRST.index(result.outcome))
    return BatchReport(worst.outcome, worst.message, worst.feedback, list(records), not_isolated=list(reasons))
