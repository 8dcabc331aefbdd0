"""evaluate(candidate, task, protocol) -> Verdict: the stages, top to bottom, each cheaper than the next.

    source rules -> load -> for each graph: match -> correctness (with the dispatch guard) -> unseen shapes -> timing
    -> scores

Runs inside a judge process; callers outside use an executor (executor.py), which starts judges and retries what is our
failure. A stage's failure ends that graph; a violation in one graph makes all of them VIOLATION.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from data.graph import Graph
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.comparison import OutputMeta
from eval_harness.coverage import coverage
from eval_harness.judge.ahead import compile_ahead
from eval_harness.judge.blame import run_fairly
from eval_harness.judge.correctness import GraphFailure, check_correctness, reference_metas
from eval_harness.judge.device_lock import exclusive_use
from eval_harness.judge.graph_loading import load_baseline, load_rewritten
from eval_harness.judge.graph_timing import measure_speedup, node_seconds
from eval_harness.judge.session import Bench, Session
from eval_harness.judge.unseen import UnseenFailure, check_unseen
from eval_harness.judge.workers import WorkerFailure
from eval_harness.machine import describe_machine, describe_versions
from eval_harness.presets import EvaluationProtocol
from eval_harness.rewriting import InvalidPatternError, Rewrite, rewrite
from eval_harness.scores import score_verdict
from eval_harness.source_rules import check_sources, syntax_error
from eval_harness.timed_graphs import TIMED_LEVEL, as_drawn, may_be_timed, not_timed, out_of_time, size_strata
from eval_harness.verdict import STRICT_LEVEL, GraphVerdict, Outcome, Verdict, Violation

Progress = Callable[[str], None]


def evaluate(
    candidate: Candidate | str,
    task: Task,
    protocol: EvaluationProtocol,
    *,
    bench: Bench,
    seed: int,
    progress: Progress = lambda stage: None,
) -> Verdict:
    """One evaluation of a candidate, or of a baseline by name ("eager", "inductor"), on a bench.

    Raises HarnessError when the machine or the harness is at fault; everything else is in the verdict.
    """
    evaluation = _Evaluation(candidate, task, protocol, bench, seed, progress)
    return evaluation.run()


class _Evaluation:
    def __init__(
        self,
        candidate: Candidate | str,
        task: Task,
        protocol: EvaluationProtocol,
        bench: Bench,
        seed: int,
        progress: Progress,
    ) -> None:
        self.candidate = candidate if isinstance(candidate, Candidate) else None
        self.baseline = candidate if isinstance(candidate, str) else None
        self.task, self.protocol, self.bench, self.seed, self.progress = task, protocol, bench, seed, progress
        self.folder_violations: list[Violation] = []
        self.timings: dict[str, float] = {}
        self.started = time.monotonic()
        self.num_graphs_left = len(task.graphs)
        self.unseen_left = protocol.max_unseen_graphs

    @property
    def _guarded(self) -> bool:
        return self.baseline is None and self.protocol.integrity == "full" and self.protocol.checks("dispatch")

    def run(self) -> Verdict:
        if self.candidate is not None and (verdict := self._sources(self.candidate)):
            return verdict
        session = Session(self.bench, self.protocol, self.seed, is_baseline=self.baseline is not None)
        try:
            if self.candidate is not None and (verdict := self._load(session, self.candidate)):
                return verdict
            most = self.protocol.max_timed_graphs
            time_at_once = most is None or len(self.task.graphs) <= most
            graphs = []
            for index, graph in enumerate(self.task.graphs):
                self.progress(f"graph {index + 1}/{len(self.task.graphs)} {graph.name}")
                graphs.append(self._graph(session, graph, is_timed=time_at_once))
                self.num_graphs_left -= 1
            if not time_at_once:
                self._time_some(session, graphs)
            return self._verdict(graphs, session)
        finally:
            session.close()

    def _sources(self, candidate: Candidate) -> Verdict | None:
        """Static rules over every file decide for the whole folder, before any of it runs."""
        self.progress("source rules")
        if problem := syntax_error(candidate):
            return self._all(Outcome.COMPILE_ERROR, problem)
        if self.protocol.checks("source"):
            self.folder_violations = check_sources(candidate, level=self.protocol.integrity)
        if self.folder_violations:
            return self._all(Outcome.VIOLATION, _first_message(self.folder_violations))
        return None

    def _load(self, session: Session, candidate: Candidate) -> Verdict | None:
        self.progress("loading the pass")
        try:
            session.load_candidate(candidate)
        except WorkerFailure as failure:
            failed = GraphFailure.of_worker(failure, "loading the pass")
            outcome = Outcome.COMPILE_ERROR if failure.kind == "runtime" else failed.outcome
            return self._all(outcome, failed.message, session)
        self._clock("load")
        if self.protocol.checks("structure"):
            self.folder_violations = [violation for rule in session.rules for violation in rule.violations]
        if self.folder_violations:
            return self._all(Outcome.VIOLATION, _first_message(self.folder_violations), session)
        return None

    def _graph(self, session: Session, graph: Graph, *, is_timed: bool) -> GraphVerdict:
        fields: dict[str, Any] = {"graph": graph.name, "graph_hash": graph.content_hash}
        try:
            if session.seconds_left() <= 0:
                raise GraphFailure(
                    Outcome.TIMEOUT, f"the task's {self.protocol.task_timeout_s:.0f} s were spent on earlier graphs"
                )
            rewritten = self._match(session, graph, fields)
            if rewritten is not None:
                compile_ahead(session, self.bench.trace(graph), rewritten)
                self._clock("compile ahead")
            with self._device(session):
                before = dict(fields)

                def stages() -> None:
                    fields.clear()
                    fields.update(before)
                    self._run_stages(session, graph, rewritten, fields, is_timed=is_timed)

                run_fairly(session, graph, stages)
        except GraphFailure as failure:
            self._book_failure(session, failure, fields)
        return GraphVerdict(**fields)

    @contextmanager
    def _device(self, session: Session) -> Iterator[None]:
        with exclusive_use(self.bench.device, on_wait=lambda: self.progress("waiting for the device")) as waited_s:
            session.extend(waited_s)
            yield

    def _run_stages(
        self, session: Session, graph: Graph, rewritten: Rewrite | None, fields: dict[str, Any], *, is_timed: bool
    ) -> None:
        """Everything that uses the device."""
        self._load_graph(session, graph, rewritten)
        metas = reference_metas(session, graph)
        result = check_correctness(session, graph, metas, guarded=self._guarded)
        self._clock("correctness")
        level = result.first_correct_t
        if rewritten is not None:
            fields["coverage"] = coverage(
                self.bench.trace(graph), rewritten.replaced_nodes, node_seconds(session, graph)
            )
            self._clock("coverage")
        if level is not None and level <= TIMED_LEVEL:
            if rewritten is not None and self._is_checked_unseen(session):
                self._unseen(session, graph, rewritten, level, fields)
            if is_timed:
                level = self._time(session, graph, rewritten, metas, level, fields)
        fields["max_abs_difference"] = result.max_abs_difference
        _book_level(fields, level, result.message)

    def _is_checked_unseen(self, session: Session) -> bool:
        """All graphs, or a secret choice: each of those left with the same chance."""
        protocol = self.protocol
        if not (protocol.unseen_shapes or protocol.unseen_dtypes) or protocol.clock != "paired":
            return False
        if self.unseen_left is None:
            return True
        if session.generator.random() * self.num_graphs_left >= self.unseen_left:
            return False
        self.unseen_left -= 1
        return True

    def _unseen(
        self, session: Session, graph: Graph, rewritten: Rewrite, level: int, fields: dict[str, Any]
    ) -> None:
        try:
            fields["unseen"] = check_unseen(session, self.bench.trace(graph), level)
        except UnseenFailure as failure:
            fields["unseen"] = failure.checks
            raise
        self._load_graph(session, graph, rewritten)
        self._clock("unseen shapes")

    def _time(
        self,
        session: Session,
        graph: Graph,
        rewritten: Rewrite | None,
        metas: Sequence[OutputMeta],
        level: int,
        fields: dict[str, Any],
    ) -> int:
        """first_correct_t with the timed calls' outputs counted."""
        try:
            return measure_speedup(session, graph, metas, level, fields, guarded=self._guarded)
        except GraphFailure as failure:
            if not fields.get("unseen") or failure.outcome is not Outcome.RUNTIME_ERROR or self.baseline is not None:
                raise
            # what a kernel wrote out of bounds at another shape may show only now: the task's own shapes get a process
            # that has seen no other
            session.candidate.kill()
            self._load_graph(session, graph, rewritten)
            return measure_speedup(session, graph, metas, level, fields, guarded=self._guarded)
        finally:
            self._clock("timing")

    def _book_failure(self, session: Session, failure: GraphFailure, fields: dict[str, Any]) -> None:
        if failure.outcome in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY):
            session.after_failure()
        fields |= {"outcome": failure.outcome, "message": failure.message, "violations": failure.violations}
        fields |= {"speedup": None, "speedup_interval": None, "first_correct_t": None}

    def _time_some(self, session: Session, verdicts: list[GraphVerdict]) -> None:
        """Time a secret stratified choice of the graphs that may be timed, in secret order, while there is time."""
        by_name = {graph.name: graph for graph in self.task.graphs}

        def size(index: int) -> int:
            return sum(spec.num_elements for spec in by_name[verdicts[index].graph].specs.values())

        eligible = [index for index, verdict in enumerate(verdicts) if may_be_timed(verdict)]
        strata = size_strata(eligible, size, self.protocol.max_timed_graphs or len(eligible))
        session.generator.shuffle(strata)
        choice = f"{len(strata)} of {len(eligible)} graphs were drawn; counts with their geometric mean"
        num_timed = 0
        for stratum in strata:
            others = list(stratum)
            if session.seconds_left() > 0:
                index = others.pop(session.generator.randrange(len(others)))
                self._time_drawn(session, by_name[verdicts[index].graph], verdicts, index)
                num_timed += verdicts[index].speedup is not None
                for other in others:
                    verdicts[other] = as_drawn(not_timed(verdicts[other], choice), verdicts[index])
            elif num_timed:
                for other in others:
                    verdicts[other] = not_timed(verdicts[other], "the task's time was spent")
            else:
                for other in others:
                    verdicts[other] = out_of_time(verdicts[other], self.protocol.task_timeout_s)

    def _time_drawn(self, session: Session, graph: Graph, verdicts: list[GraphVerdict], index: int) -> None:
        self.progress(f"timing {graph.name}")
        fields = verdicts[index].model_dump(exclude={"outcome"})
        try:
            rewritten = self._match(session, graph, fields)
            with self._device(session):
                run_fairly(session, graph, partial(self._time_graph, session, graph, rewritten, fields))
        except GraphFailure as failure:
            self._book_failure(session, failure, fields)
        self._clock("timing")
        verdicts[index] = GraphVerdict(**fields)

    def _time_graph(self, session: Session, graph: Graph, rewritten: Rewrite | None, fields: dict[str, Any]) -> None:
        self._load_graph(session, graph, rewritten)
        metas = reference_metas(session, graph)
        said, fields["message"] = fields["message"], ""
        level = measure_speedup(session, graph, metas, fields["first_correct_t"], fields, guarded=self._guarded)
        _book_level(fields, level, "")
        fields["message"] = fields["message"] or said

    def _match(self, session: Session, graph: Graph, fields: dict[str, Any]) -> Rewrite | None:
        if self.baseline is not None:
            return None
        try:
            rewritten = rewrite(self.bench.trace(graph), session.rules)
        except InvalidPatternError as error:
            raise GraphFailure(Outcome.COMPILE_ERROR, str(error)) from None
        self._clock("match")
        fields["match_report"] = rewritten.report
        if rewritten.violations and self.protocol.checks("structure"):
            raise GraphFailure(Outcome.VIOLATION, _first_message(rewritten.violations), rewritten.violations)
        if not rewritten.num_matches:
            raise GraphFailure(Outcome.NO_MATCH, rewritten.report)
        return rewritten

    def _load_graph(self, session: Session, graph: Graph, rewritten: Rewrite | None) -> None:
        traced = self.bench.trace(graph)
        if rewritten is not None:
            load_rewritten(session, traced, rewritten)
        elif self.baseline is not None:
            load_baseline(session, traced, self.baseline)

    def _all(self, outcome: Outcome, message: str, session: Session | None = None) -> Verdict:
        """The same outcome for every graph."""
        violations = self.folder_violations if outcome is Outcome.VIOLATION else []
        graphs = [
            GraphVerdict(
                graph=graph.name, graph_hash=graph.content_hash, outcome=outcome, message=message, violations=violations
            )
            for graph in self.task.graphs
        ]
        return self._verdict(graphs, session)

    def _verdict(self, graphs: list[GraphVerdict], session: Session | None) -> Verdict:
        if any(graph.outcome is Outcome.VIOLATION for graph in graphs):
            graphs = [_as_violation(graph, graphs) for graph in graphs]
        complete = not any(graph.outcome is Outcome.UNSTABLE for graph in graphs)
        scores = score_verdict(graphs, self.protocol.scoring, self.protocol.slowdown_exponent) if complete else None
        self.timings["total"] = round(time.monotonic() - self.started, 3)
        return Verdict(
            candidate_hash=self.candidate.candidate_hash if self.candidate else f"baseline:{self.baseline}",
            task_id=self.task.task_id,
            task_hash=self.task.content_hash,
            protocol=self.protocol.name,
            device=self.bench.device,
            complete=complete,
            as_score=scores.as_score if scores else None,
            as_covered=scores.as_covered if scores else None,
            es=scores.es if scores else {},
            violations=self.folder_violations,
            disabled_layers=list(self.protocol.disabled_layers),
            graphs=graphs,
            machine=describe_machine(self.bench.device) | {"aa_floor_log_ratio": self.bench.aa_floor},
            versions=describe_versions(),
            confinement=session.confinement() if session else {},
            seeds={"master": self.seed},
            timings={stage: round(seconds, 3) for stage, seconds in self.timings.items()},
            candidate_output=session.printed[:4000] if session and self.candidate else "",
        )

    def _clock(self, stage: str) -> None:
        """Book the time since the last stage ended."""
        spent = time.monotonic() - self.started - sum(self.timings.values())
        self.timings[stage] = self.timings.get(stage, 0.0) + spent


def _book_level(fields: dict[str, Any], level: int | None, message: str) -> None:
    """Outcome from the tolerance level, unless timing has made it UNSTABLE."""
    is_correct = level is not None and level <= STRICT_LEVEL
    fields["first_correct_t"] = level
    fields.setdefault("outcome", Outcome.CORRECT if is_correct else Outcome.WRONG_VALUES)
    if not is_correct and message:
        fields["message"] = f"values: {message}"


def _as_violation(graph: GraphVerdict, graphs: list[GraphVerdict]) -> GraphVerdict:
    """A violation in one graph holds for the folder: whoever cheats on one is not scored on the others."""
    if graph.outcome is Outcome.VIOLATION:
        return graph
    guilty = next(other for other in graphs if other.outcome is Outcome.VIOLATION)
    return GraphVerdict(
        graph=graph.graph,
        graph_hash=graph.graph_hash,
        outcome=Outcome.VIOLATION,
        coverage=graph.coverage,
        violations=guilty.violations,
        message=f"violation in graph {guilty.graph}: {guilty.message}",
        match_report=graph.match_report,
    )


def _first_message(violations: Sequence[Violation]) -> str:
    first = violations[0]
    where = f"{first.file}:{first.line}: " if first.file and first.line else ""
    return f"{where}{first.message} [{first.rule}]"
