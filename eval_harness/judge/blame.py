"""Whose failure it was, where the first look does not say.

Three cases are not plain:
- A worker was killed by a SIGKILL that the judge did not send: the kernel short of memory, an administrator, or the
  candidate itself. One more try on fresh processes; if that ends alike, it is the candidate's.
- Eager failed while a candidate was loaded: the graph's or the machine's fault, unless eager works alone, in the same
  place, once the candidate is gone; then one more try, and if eager fails beside it again, it is the candidate's.
- Eager fails alone as well: nobody's score (ReferenceFailedError).

What brings the whole judge down is counted by the executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from data.graph import Graph
from eval_harness.errors import JudgeError, ReferenceFailedError
from eval_harness.judge.correctness import GraphFailure, reference_metas
from eval_harness.judge.graph_loading import load_eager
from eval_harness.judge.session import Session
from eval_harness.judge.workers import WorkerFailure
from eval_harness.verdict import Outcome

log = logging.getLogger(__name__)

_DISTURBANCES = {"oom": Outcome.OUT_OF_MEMORY, "timeout": Outcome.TIMEOUT}
"""How the reference failed -> what that makes of the candidate that caused it."""


def run_fairly(session: Session, graph: Graph, stages: Callable[[], None]) -> None:
    """Run a graph's stages from its loading on; again, on fresh processes, where the cause is not plain.

    Raises GraphFailure (the candidate's) and HarnessError (ours).
    """
    try:
        _run(stages)
        return
    except GraphFailure as failure:
        if failure.is_certain:
            raise
        log.warning("%s: %s; tried again on a fresh process", graph.name, failure.message)
    except ReferenceFailedError as error:
        _check_that_eager_works_alone(session, graph, error)
        log.warning("%s: %s, and works without the candidate; tried again", graph.name, error)
    session.drop_candidate()
    try:
        _run(stages)
    except ReferenceFailedError as error:
        _check_that_eager_works_alone(session, graph, error)
        if error.kind == "killed":
            # inside its namespaces the candidate cannot reach the reference; somebody else ends our processes
            raise JudgeError(f"the reference process was killed twice: {error}") from None
        outcome = _DISTURBANCES.get(error.kind, Outcome.RUNTIME_ERROR)
        raise GraphFailure(outcome, f"eager works alone and fails twice beside this pass: {error}") from None


def _run(stages: Callable[[], None]) -> None:
    try:
        stages()
    except WorkerFailure as failure:
        # between the stages' own requests: handing over memory files, loading the pass into a fresh process
        if failure.role == "reference":
            raise ReferenceFailedError(f"the graph fails in eager: {failure.message}", failure.kind) from None
        raise GraphFailure.of_worker(failure, "running the rewritten graph") from None


def _check_that_eager_works_alone(session: Session, graph: Graph, error: ReferenceFailedError) -> None:
    """Raises the error again if eager fails on this graph with the candidate gone."""
    if session.is_baseline or not error.kind:
        raise error
    session.drop_candidate()
    load_eager(session, session.bench.trace(graph))
    reference_metas(session, graph)
