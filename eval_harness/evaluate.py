"""evaluate(candidate, task, protocol) -> Verdict: the stages, top to bottom, each cheaper than the next.

    source rules -> static batch invariance -> load -> for each graph: match -> compile ahead -> correctness (with the
    dispatch guard) -> batch invariance -> unseen shapes -> timing -> scores

Runs inside a judge process; callers outside use an executor (executor.py), which starts judges and retries what is our
failure. A stage's failure ends that graph (graph_stages.py); a violation in one graph makes all of them VIOLATION.
"""

from __future__ import annotations

from typing import Any

from data.graph import Graph
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.graph_stages import GraphStages, Progress, Stopwatch, first_message
from eval_harness.judge.correctness import GraphFailure
from eval_harness.judge.session import Bench, Session
from eval_harness.judge.workers import WorkerFailure
from eval_harness.machine import describe_machine, describe_versions
from eval_harness.presets import EvaluationProtocol
from eval_harness.scores import score_verdict
from eval_harness.source_rules import check_sources, syntax_error
from eval_harness.static_findings import StaticFindings
from eval_harness.timed_graphs import as_drawn, may_be_timed, not_timed, out_of_time, size_strata
from eval_harness.verdict import GraphVerdict, Outcome, Verdict, Violation

NO_CLOCK = "the protocol asks for correctness alone"


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
        self.static_findings: StaticFindings | None = None
        self.stopwatch = Stopwatch()

    def run(self) -> Verdict:
        if self.candidate is not None and (verdict := self._sources(self.candidate)):
            return verdict
        session = Session(self.bench, self.protocol, self.seed, is_baseline=self.baseline is not None)
        try:
            if self.candidate is not None and (verdict := self._load(session, self.candidate)):
                return verdict
            stages = GraphStages(
                session, num_graphs=len(self.task.graphs), baseline=self.baseline, stopwatch=self.stopwatch,
                progress=self.progress, static_findings=self.static_findings,
            )  # fmt: skip
            most = self.protocol.max_timed_graphs
            is_clocked = self.protocol.timing
            time_at_once = is_clocked and (most is None or len(self.task.graphs) <= most)
            graphs = []
            for index, graph in enumerate(self.task.graphs):
                self.progress(f"graph {index + 1}/{len(self.task.graphs)} {graph.name}")
                graphs.append(stages.run(graph, is_timed=time_at_once))
            if not is_clocked:
                graphs = [not_timed(graph, NO_CLOCK) if may_be_timed(graph) else graph for graph in graphs]
            elif not time_at_once:
                self._time_some(session, stages, graphs)
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
            return self._all(Outcome.VIOLATION, first_message(self.folder_violations))
        if self.protocol.batch_invariance != "off":
            self.static_findings = StaticFindings.of(candidate, self.task.graphs)
            if self.protocol.batch_invariance == "enforce" and (text := self.static_findings.feedback_for_all()):
                return self._all(Outcome.BATCH_VARIANT, text)
        return None

    def _load(self, session: Session, candidate: Candidate) -> Verdict | None:
        self.progress("loading the pass")
        try:
            session.load_candidate(candidate)
        except WorkerFailure as failure:
            failed = GraphFailure.of_worker(failure, "loading the pass")
            outcome = Outcome.COMPILE_ERROR if failure.kind == "runtime" else failed.outcome
            return self._all(outcome, failed.message, session)
        self.stopwatch.book("load")
        if self.protocol.checks("structure"):
            self.folder_violations = [violation for rule in session.rules for violation in rule.violations]
        if self.folder_violations:
            return self._all(Outcome.VIOLATION, first_message(self.folder_violations), session)
        return None

    def _time_some(self, session: Session, stages: GraphStages, verdicts: list[GraphVerdict]) -> None:
        """Time a secret stratified choice of the graphs that may be timed, in secret order, while there is time."""
        graphs = self.task.graphs

        def size(index: int) -> int:
            return sum(spec.num_elements for spec in graphs[index].specs.values())

        eligible = [index for index, verdict in enumerate(verdicts) if may_be_timed(verdict)]
        strata = size_strata(eligible, size, self.protocol.max_timed_graphs or len(eligible))
        session.generator.shuffle(strata)
        choice = f"{len(strata)} of {len(eligible)} graphs were drawn; counts with their geometric mean"
        num_timed = 0
        for stratum in strata:
            others = list(stratum)
            if session.seconds_left() > 0:
                index = others.pop(session.generator.randrange(len(others)))
                verdicts[index] = stages.time(graphs[index], verdicts[index])
                num_timed += verdicts[index].speedup is not None
                for other in others:
                    verdicts[other] = as_drawn(not_timed(verdicts[other], choice), verdicts[index])
            elif num_timed:
                for other in others:
                    verdicts[other] = not_timed(verdicts[other], "the task's time was spent")
            else:
                for other in others:
                    verdicts[other] = out_of_time(verdicts[other], self.protocol.task_timeout_s)

    def _all(self, outcome: Outcome, message: str, session: Session | None = None) -> Verdict:
        """The same outcome for every graph."""
        violations = self.folder_violations if outcome is Outcome.VIOLATION else []
        graphs = [
            GraphVerdict(
                graph=graph.name,
                graph_hash=graph.content_hash,
                outcome=outcome,
                message=message,
                violations=violations,
                batch_invariance=self._static_record(graph),
            )
            for graph in self.task.graphs
        ]
        return self._verdict(graphs, session)

    def _static_record(self, graph: Graph) -> dict[str, Any] | None:
        return None if self.static_findings is None else {"static": self.static_findings.record(graph)}

    def _verdict(self, graphs: list[GraphVerdict], session: Session | None) -> Verdict:
        if any(graph.outcome is Outcome.VIOLATION for graph in graphs):
            graphs = [_as_violation(graph, graphs) for graph in graphs]
        complete = not any(graph.outcome is Outcome.UNSTABLE for graph in graphs)
        is_scored = complete and self.protocol.timing
        scores = score_verdict(graphs, self.protocol.scoring, self.protocol.slowdown_exponent) if is_scored else None
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
            timings=self.stopwatch.timings(),
            candidate_output=session.printed[:4000] if session and self.candidate else "",
        )


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
