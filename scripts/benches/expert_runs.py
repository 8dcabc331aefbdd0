"""Tasks in random order through the expert and the real harness, and the same graphs through eager and TorchInductor.

    task -> plan -> evaluate the pass -> one of its graphs, drawn by seed: the pass behind guards, the baselines

Several judges share the device's lock: one evaluation compiles while another is timed. Comparisons of a task come right
behind it, so that a run which is cut off has them for what it has reached.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from typing import get_args

from data.graph import Graph, MalformedGraphError
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, ReferenceFailedError, UserError
from eval_harness.judge_pool import JudgePool
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Outcome, Verdict
from scripts.benches.expert_plan import RunSettings, draw_graph, plan_task
from scripts.benches.expert_records import ComparisonRecord, Member, Progress, Record, ResultFile, Row, TaskRecord

BASELINE_BATCH = 4
"""Graphs that one evaluation of a baseline measures: its process lives on, that of eager beside it is made anew."""
BASELINE_TIMEOUTS = {"graph_timeout_s": 300.0, "task_timeout_s": 1500.0}
"""TorchInductor compiles on one core, and what a slow machine cuts short would be booked as its failure."""
QUEUED_FOR_EACH_JUDGE = 2
GRACE_S = 15.0
"""What runs when the time is over may take this long still; then it is ended, and nothing is kept of it."""
MAX_FAILURES_IN_A_ROW = 5
"""Failures of ours; then something is wrong with the machine, and the run ends."""


@dataclass(eq=False)
class Work:
    """One evaluation to be submitted."""

    subject: Candidate | str
    task: Task
    protocol: EvaluationProtocol
    record: TaskRecord | ComparisonRecord
    """Lacks the verdict."""
    submitted_at: float = 0.0

    def ended(self, verdict: Verdict | None, error: str | None) -> Record:
        update = {"verdict": verdict, "error": error, "wall_s": round(time.monotonic() - self.submitted_at, 3)}
        return self.record.model_copy(update=update)


class ExpertRun:
    """One run over tasks in a given order."""

    def __init__(
        self,
        settings: RunSettings,
        order: Sequence[Task],
        pool: JudgePool,
        results: ResultFile,
        *,
        on_task: Callable[[int, Task, TaskRecord], None] = lambda index, task, record: None,
    ) -> None:
        """on_task: told the place in the order, the task and its record as each one ends."""
        self._settings, self._order, self._pool, self._results = settings, order, pool, results
        self._on_task = on_task
        self._places = {task.task_id: place for place, task in enumerate(order)}
        self._tasks = iter(order)
        self._ready: deque[Work] = deque()
        self._batch: list[tuple[Task, Graph]] = []
        self._num_compared = 0
        self._failures = 0
        self._ended: dict[str, TaskRecord] = {}
        self._compared: dict[str, Member] = {}
        self._candidate_hashes: dict[str, str] = {}
        self._num_resumed = 0

    def run(self, deadline: float | None) -> Progress:
        """Everything, or what there is time for until time.monotonic() is deadline. Raises HarnessError."""
        running: dict[Future[Verdict], Work] = {}
        wanted = QUEUED_FOR_EACH_JUDGE * max(self._pool.metrics().num_judges, 1)
        is_over = False
        try:
            while not (is_over := deadline is not None and time.monotonic() >= deadline):
                while len(running) < wanted and (work := self._next(deadline)) is not None:
                    work.submitted_at = time.monotonic()
                    running[self._pool.submit(work.subject, work.task, protocol=work.protocol)] = work
                if not running:
                    break
                left = None if deadline is None else max(deadline - time.monotonic(), 0)
                self._take(running, wait(running, timeout=left, return_when=FIRST_COMPLETED).done)
            waiting = [future for future in running if future.cancel()]
            for future in waiting:
                del running[future]
            self._take(running, wait(running, timeout=GRACE_S).done)
            is_over = is_over and bool(waiting or running or self._ready or self._batch)
        finally:
            for future in running:
                self._pool.cancel_running(future)
        return self._progress(is_over)

    def _take(self, running: dict[Future[Verdict], Work], done: set[Future[Verdict]]) -> None:
        for future in done:
            self._end(running.pop(future), future)

    def _end(self, work: Work, future: Future[Verdict]) -> None:
        try:
            record = work.ended(future.result(), None)
            self._failures = 0
        except (ReferenceFailedError, MalformedGraphError, UserError) as error:  # of this task alone
            record = work.ended(None, f"{type(error).__name__}: {error}")
        except HarnessError as error:
            record = work.ended(None, f"{type(error).__name__}: {error}")
            self._failures += 1
            if self._failures >= MAX_FAILURES_IN_A_ROW:
                raise HarnessError(f"{self._failures} evaluations in a row failed, the last with: {error}") from None
        except CancelledError:
            return
        self._results.append(record)
        if isinstance(record, TaskRecord):
            self._book_task(record)
            self._compare_guarded(record, work.subject)

    def _book_task(self, record: TaskRecord) -> None:
        self._ended[record.task_id] = record
        index = self._places[record.task_id]
        self._on_task(index, self._order[index], record)

    def _next(self, deadline: float | None) -> Work | None:
        """The next evaluation; None when there is no more, or no more time to plan one."""
        while not self._ready:
            task = next(self._tasks, None)
            if task is not None:
                self._open(task)
            elif self._batch:
                self._compare_baselines()
            else:
                return None
            if deadline is not None and time.monotonic() >= deadline and not self._ready:
                return None
        return self._ready.popleft()

    def _open(self, task: Task) -> None:
        """Plan a task and queue what it needs, less what an earlier run did with the same pass."""
        plan, candidate = plan_task(task, self._settings.device)
        record = TaskRecord(task_id=task.task_id, task_hash=task.content_hash, plan=plan)
        known = self._results.tasks.get(task.task_id)
        if known and known.is_final and _is_same(known, record):
            self._num_resumed += 1
            self._ended[task.task_id] = known
        elif candidate is None:
            self._results.append(record)
            self._book_task(record)
        else:
            self._ready.append(Work(candidate, task, self._settings.protocol, record))
        if candidate is not None:
            self._candidate_hashes[task.task_id] = candidate.candidate_hash
            self._compare(task)
            if known is not None and task.task_id in self._ended:
                self._compare_guarded(known, candidate)

    def _compare(self, task: Task) -> None:
        most = self._settings.max_compared
        if not self._settings.baselines or (most is not None and self._num_compared >= most):
            return
        self._num_compared += 1
        graph = draw_graph(task, self._settings.seed)
        self._compared[task.task_id] = _member(task, graph)
        self._batch.append((task, graph))
        if len(self._batch) >= BASELINE_BATCH:
            self._compare_baselines()

    def _compare_guarded(self, record: TaskRecord, subject: Candidate | str) -> None:
        """The pass behind guards, if the graph is CORRECT without them; guards mend nothing."""
        member = self._compared.get(record.task_id)
        if member is None or record.verdict is None or "inductor" not in self._settings.baselines:
            return
        own = next(graph for graph in record.verdict.graphs if graph.graph == member.graph)
        if self._settings.guards and own.outcome is Outcome.CORRECT:
            task = self._order[self._places[record.task_id]]
            self._queue("expert", subject, [(task, task.graph(member.graph))], guards=True)

    def _compare_baselines(self) -> None:
        batch, self._batch = self._batch, []
        for baseline in self._settings.baselines:
            self._queue(baseline, baseline, batch, guards=False)
            if self._settings.guards and baseline == "inductor":
                self._queue(baseline, baseline, batch, guards=True)

    def _queue(self, row: Row, subject: Candidate | str, chosen: Sequence[tuple[Task, Graph]], *, guards: bool) -> None:
        candidate_hash = subject.candidate_hash if isinstance(subject, Candidate) else ""
        missing = [(task, graph) for task, graph in chosen if not self._is_known(row, guards, graph, candidate_hash)]
        if not missing:
            return
        members = [_member(task, graph) for task, graph in missing]
        graphs = tuple(Graph(f"compared_{index}", graph.files) for index, (_, graph) in enumerate(missing))
        protocol = self._settings.guarded_protocol if guards else self._settings.protocol
        if not candidate_hash:
            protocol = protocol.model_copy(update=BASELINE_TIMEOUTS)
        record = ComparisonRecord(row=row, guards=guards, members=members, candidate_hash=candidate_hash)
        self._ready.append(Work(subject, Task(f"compared with {row}", graphs), protocol, record))

    def _is_known(self, row: Row, guards: bool, graph: Graph, candidate_hash: str) -> bool:
        known = self._results.comparisons.get((row, guards, graph.content_hash, candidate_hash))
        return known is not None and known.verdict_of(graph.content_hash) is not None

    def _progress(self, is_over: bool) -> Progress:
        reached = list(_until_none(self._ended.get(task.task_id) for task in self._order))
        ids = {record.task_id for record in reached}
        compared = [member for task_id, member in self._compared.items() if task_id in ids]
        return Progress(
            reached=reached,
            num_beyond=len(self._ended) - len(reached),
            compared=compared,
            comparisons=self._comparisons(compared),
            was_cut_off=is_over or len(reached) < len(self._order),
            num_resumed=self._num_resumed,
        )

    def _comparisons(self, compared: Sequence[Member]) -> list[ComparisonRecord]:
        found: dict[int, ComparisonRecord] = {}
        kinds: list[tuple[Row, bool]] = [(row, guards) for row in get_args(Row) for guards in (False, True)]
        for member in compared:
            for row, guards in kinds:
                of_pass = self._candidate_hashes[member.task_id] if row == "expert" else ""
                if record := self._results.comparisons.get((row, guards, member.graph_hash, of_pass)):
                    found[id(record)] = record
        return list(found.values())


def _until_none(records: Iterator[TaskRecord | None]) -> Iterator[TaskRecord]:
    for record in records:
        if record is None:
            return
        yield record


def _member(task: Task, graph: Graph) -> Member:
    return Member(task_id=task.task_id, graph=graph.name, graph_hash=graph.content_hash)


def _is_same(known: TaskRecord, now: TaskRecord) -> bool:
    """Whether an earlier record is of the same task and the same pass."""
    return known.task_hash == now.task_hash and known.plan.candidate_hash == now.plan.candidate_hash
