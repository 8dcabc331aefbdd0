"""The stages of one graph.

    match -> compile ahead -> correctness -> coverage -> batch invariance -> unseen shapes -> timing

A stage's failure ends the graph; what was measured before it stays in the verdict. evaluate.py has what concerns the
whole task: source rules, loading, which graphs are timed, scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from data.graph import Graph
from eval_harness.comparison import OutputMeta
from eval_harness.coverage import coverage
from eval_harness.judge.ahead import compile_ahead
from eval_harness.judge.batch_gate import check_batch_invariance
from eval_harness.judge.blame import run_fairly
from eval_harness.judge.correctness import GraphFailure, check_correctness, reference_metas
from eval_harness.judge.device_lock import exclusive_use
from eval_harness.judge.graph_loading import load_baseline, load_rewritten
from eval_harness.judge.graph_timing import measure_speedup, node_seconds
from eval_harness.judge.session import Session
from eval_harness.judge.unseen import UnseenFailure, check_unseen
from eval_harness.rewriting import InvalidPatternError, Rewrite, rewrite
from eval_harness.static_findings import StaticFindings
from eval_harness.timed_graphs import TIMED_LEVEL
from eval_harness.verdict import STRICT_LEVEL, GraphVerdict, Outcome, Violation

Progress = Callable[[str], None]

WORTH_BOOKING_S = 1e-3
"""A free device is waited for less."""


class Stopwatch:
    """Seconds by stage: each stretch of time is booked on the stage that ended with it."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._stages: dict[str, float] = {}

    def book(self, stage: str) -> None:
        """Book the time since the last stage ended."""
        spent = time.monotonic() - self._started - sum(self._stages.values())
        self._stages[stage] = self._stages.get(stage, 0.0) + spent

    def book_seconds(self, stage: str, seconds: float) -> None:
        """Book a part of the time since the last stage ended."""
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    def timings(self) -> dict[str, float]:
        """Rounded seconds by stage, and "total"."""
        total = time.monotonic() - self._started
        return {stage: round(seconds, 3) for stage, seconds in (self._stages | {"total": total}).items()}


class GraphStages:
    """Runs the stages of a task's graphs, one graph after the other, in one session."""

    def __init__(
        self,
        session: Session,
        *,
        num_graphs: int,
        baseline: str | None,
        stopwatch: Stopwatch,
        progress: Progress,
        static_findings: StaticFindings | None = None,
    ) -> None:
        """baseline: "eager" or "inductor" in the candidate's place."""
        self._static_findings = static_findings
        self._session, self._baseline, self._progress = session, baseline, progress
        self._bench, self._protocol = session.bench, session.protocol
        self._stopwatch, self._book = stopwatch, stopwatch.book
        self._num_graphs_left = num_graphs
        self._unseen_left = session.protocol.max_unseen_graphs

    @property
    def _guarded(self) -> bool:
        return self._baseline is None and self._protocol.integrity == "full" and self._protocol.checks("dispatch")

    def run(self, graph: Graph, *, is_timed: bool) -> GraphVerdict:
        """All stages; is_timed: the last one too."""
        fields: dict[str, Any] = {"graph": graph.name, "graph_hash": graph.content_hash}
        try:
            if self._static_findings is not None:
                fields["batch_invariance"] = {"static": self._static_findings.record(graph)}
                if self._protocol.batch_invariance == "enforce" and (text := self._static_findings.feedback(graph)):
                    raise GraphFailure(Outcome.BATCH_VARIANT, text)
            if self._session.seconds_left() <= 0:
                spent = f"the task's {self._protocol.task_timeout_s:.0f} s were spent on earlier graphs"
                raise GraphFailure(Outcome.TIMEOUT, spent)
            rewritten = self._match(graph, fields)
            if rewritten is not None:
                compile_ahead(self._session, self._bench.trace(graph), rewritten)
                self._book("compile ahead")
            with self._device():
                before = dict(fields)

                def stages() -> None:
                    fields.clear()
                    fields.update(before)
                    self._on_device(graph, rewritten, fields, is_timed=is_timed)

                run_fairly(self._session, graph, stages)
        except GraphFailure as failure:
            self._book_failure(failure, fields)
        self._num_graphs_left -= 1
        return GraphVerdict(**fields)

    def time(self, graph: Graph, verdict: GraphVerdict) -> GraphVerdict:
        """The last stage alone, of a graph that has been through the others."""
        self._progress(f"timing {graph.name}")
        fields = verdict.model_dump(exclude={"outcome"})
        try:
            rewritten = self._match(graph, fields)
            with self._device():
                run_fairly(self._session, graph, partial(self._time_again, graph, rewritten, fields))
        except GraphFailure as failure:
            self._book_failure(failure, fields)
        self._book("timing")
        return GraphVerdict(**fields)

    def _match(self, graph: Graph, fields: dict[str, Any]) -> Rewrite | None:
        if self._baseline is not None:
            return None
        try:
            rewritten = rewrite(self._bench.trace(graph), self._session.rules)
        except InvalidPatternError as error:
            raise GraphFailure(Outcome.COMPILE_ERROR, str(error)) from None
        self._book("match")
        fields["match_report"] = rewritten.report
        if rewritten.violations and self._protocol.checks("structure"):
            raise GraphFailure(Outcome.VIOLATION, first_message(rewritten.violations), rewritten.violations)
        if not rewritten.num_matches:
            raise GraphFailure(Outcome.NO_MATCH, rewritten.report)
        return rewritten

    @contextmanager
    def _device(self) -> Iterator[None]:
        def on_wait() -> None:
            self._progress("waiting for the device")

        with exclusive_use(self._bench.device, on_wait=on_wait) as waited_s:
            self._session.extend(waited_s)
            if waited_s >= WORTH_BOOKING_S:
                self._stopwatch.book_seconds("waiting for the device", waited_s)
            yield

    def _on_device(self, graph: Graph, rewritten: Rewrite | None, fields: dict[str, Any], *, is_timed: bool) -> None:
        """Everything that uses the device."""
        session = self._session
        self._load(graph, rewritten)
        metas = reference_metas(session, graph)
        result = check_correctness(session, graph, metas, guarded=self._guarded)
        self._book("correctness")
        level = result.first_correct_t
        if rewritten is not None:
            seconds = node_seconds(session, graph)
            fields["coverage"] = coverage(self._bench.trace(graph), rewritten.replaced_nodes, seconds)
            self._book("coverage")
        if level is not None and level <= TIMED_LEVEL:
            if self._protocol.batch_invariance != "off":
                self._batch_invariance(graph, rewritten, fields)
            if rewritten is not None and self._is_checked_unseen():
                self._unseen(graph, rewritten, level, fields)
            if is_timed:
                level = self._time(graph, rewritten, metas, level, fields)
        fields["max_abs_difference"] = result.max_abs_difference
        book_level(fields, level, result.message)

    def _batch_invariance(self, graph: Graph, rewritten: Rewrite | None, fields: dict[str, Any]) -> None:
        report = check_batch_invariance(self._session, self._bench.trace(graph), rewritten, self._baseline)
        fields["batch_invariance"] = (fields.get("batch_invariance") or {}) | report.as_dict()
        self._book("batch invariance")
        if report.is_violation and self._protocol.batch_invariance == "enforce" and self._baseline is None:
            raise GraphFailure(Outcome.BATCH_VARIANT, report.feedback or report.message)
        self._load(graph, rewritten)

    def _is_checked_unseen(self) -> bool:
        """All graphs, or a secret choice: each of those left with the same chance."""
        protocol = self._protocol
        if not (protocol.unseen_shapes or protocol.unseen_dtypes) or protocol.clock != "paired":
            return False
        if self._unseen_left is None:
            return True
        if self._session.generator.random() * self._num_graphs_left >= self._unseen_left:
            return False
        self._unseen_left -= 1
        return True

    def _unseen(self, graph: Graph, rewritten: Rewrite, level: int, fields: dict[str, Any]) -> None:
        try:
            fields["unseen"] = check_unseen(self._session, self._bench.trace(graph), level)
        except UnseenFailure as failure:
            fields["unseen"] = failure.checks
            raise
        self._load(graph, rewritten)
        self._book("unseen shapes")

    def _time(
        self, graph: Graph, rewritten: Rewrite | None, metas: Sequence[OutputMeta], level: int, fields: dict[str, Any]
    ) -> int:
        """first_correct_t with the timed calls' outputs counted."""
        measure = partial(measure_speedup, self._session, graph, metas, level, fields, guarded=self._guarded)
        try:
            return measure()
        except GraphFailure as failure:
            if not fields.get("unseen") or failure.outcome is not Outcome.RUNTIME_ERROR or self._baseline is not None:
                raise
            # what a kernel wrote out of bounds at another shape may show only now: the task's own shapes get a process
            # that has seen no other
            self._session.candidate.kill()
            self._load(graph, rewritten)
            return measure()
        finally:
            self._book("timing")

    def _time_again(self, graph: Graph, rewritten: Rewrite | None, fields: dict[str, Any]) -> None:
        self._load(graph, rewritten)
        metas = reference_metas(self._session, graph)
        said, fields["message"] = fields["message"], ""
        level = self._time(graph, rewritten, metas, fields["first_correct_t"], fields)
        book_level(fields, level, "")
        fields["message"] = fields["message"] or said

    def _load(self, graph: Graph, rewritten: Rewrite | None) -> None:
        traced = self._bench.trace(graph)
        if rewritten is not None:
            load_rewritten(self._session, traced, rewritten)
        elif self._baseline is not None:
            load_baseline(self._session, traced, self._baseline)

    def _book_failure(self, failure: GraphFailure, fields: dict[str, Any]) -> None:
        if failure.outcome in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY):
            self._session.after_failure()
        fields |= {"outcome": failure.outcome, "message": failure.message, "violations": failure.violations}
        fields |= {"speedup": None, "speedup_interval": None, "first_correct_t": None}


def book_level(fields: dict[str, Any], level: int | None, message: str) -> None:
    """Outcome from the tolerance level, unless timing has made it UNSTABLE."""
    is_correct = level is not None and level <= STRICT_LEVEL
    fields["first_correct_t"] = level
    fields.setdefault("outcome", Outcome.CORRECT if is_correct else Outcome.WRONG_VALUES)
    if not is_correct and message:
        fields["message"] = f"values: {message}"


def first_message(violations: Sequence[Violation]) -> str:
    """The first violation on one line."""
    first = violations[0]
    where = f"{first.file}:{first.line}: " if first.file and first.line else ""
    return f"{where}{first.message} [{first.rule}]"
