"""One graph in both workers of a session: eager in the reference, rewritten or a baseline in the candidate."""

from __future__ import annotations

from typing import Any

from eval_harness.judge.correctness import GraphFailure
from eval_harness.judge.session import EAGER, INDUCTOR, Session
from eval_harness.judge.workers import WorkerFailure
from eval_harness.rewriting import Rewrite
from eval_harness.tracing import TracedGraph


def load_rewritten(session: Session, traced: TracedGraph, rewritten: Rewrite) -> None:
    """Eager and the rewritten graph. Raises GraphFailure (candidate), ReferenceFailedError."""
    eager = eager_request(traced)
    fields: dict[str, Any] = eager | {
        "kind": "rewritten",
        "ir": rewritten.ir.to_json(),
        "original_ir": eager["ir"],
        "num_outputs": dict(rewritten.num_outputs),
    }
    _load(session, eager, fields, how=session.protocol.apply)


def load_baseline(session: Session, traced: TracedGraph, baseline: str) -> None:
    """Eager, and the baseline by name. Raises GraphFailure (baseline), ReferenceFailedError."""
    how = "direct" if baseline == EAGER else baseline
    how = "inductor_guarded" if how == INDUCTOR and session.protocol.apply == "compile" else how
    fields = eager_request(traced)
    _load(session, fields, fields, how=how)


def load_eager(session: Session, traced: TracedGraph) -> None:
    """Eager in the reference alone. Raises ReferenceFailedError."""
    session.ask_reference("load_graph", apply="direct", **eager_request(traced))


def eager_request(traced: TracedGraph) -> dict[str, Any]:
    """Fields of a load_graph request for eager, but for `apply`."""
    graph = traced.graph
    return {
        "kind": "eager",
        "name": graph.name,
        "files": dict(graph.files),
        "arguments": list(graph.arguments),
        "ir": traced.ir.to_json(),
    }


def _load(session: Session, eager: dict[str, Any], fields: dict[str, Any], *, how: str) -> None:
    # a graph may be compiled now: not on the core on which another pair may be timed
    cores = session.bench.other_cores
    session.ask_reference("load_graph", apply="direct", cores=cores, **eager)
    try:
        session.candidate.ask(
            "load_graph", timeout_s=session.protocol.graph_timeout_s, apply=how, cores=cores, **fields
        )
    except WorkerFailure as failure:
        raise GraphFailure.of_worker(failure, "building the rewritten graph") from None
