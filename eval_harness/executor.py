"""Where evaluations run. Callers depend on the Evaluator protocol only. Loads without torch.

LocalExecutor keeps num_judges judge processes on this machine and queues evaluations for them. Failures of ours are
retried on a fresh judge; a candidate that brings down two fresh judges is a RUNTIME_ERROR; an UNSTABLE verdict is tried
again and, if it stays so, returned incomplete.
"""

from __future__ import annotations

import itertools
import logging
import queue
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, JudgeError, ReferenceFailedError
from eval_harness.judge.process import JudgeProcess
from eval_harness.presets import EvaluationProtocol
from eval_harness.scores import score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict

log = logging.getLogger(__name__)

MAX_TRIES = 2
SEED_BITS = 48


class Evaluator(Protocol):
    """Evaluates candidates; thread-safe. Failures of ours surface as HarnessError from the future."""

    device: str

    def submit(
        self, candidate: Candidate | str, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        """Queue one evaluation of a candidate, or of a baseline by name. seed None draws a secret one."""
        ...

    def close(self) -> None: ...


class LocalExecutor:
    """Judges on this machine, all for one device. A context manager."""

    def __init__(
        self, device: str = "cpu", num_judges: int = 1, *, progress: Callable[[str], None] | None = None
    ) -> None:
        self.device = device
        self._progress = progress
        self._jobs: queue.PriorityQueue = queue.PriorityQueue()
        self._order = itertools.count()
        self._closed = self._joined = False
        self._judges = [JudgeProcess(device) for _ in range(num_judges)]
        self._threads = [threading.Thread(target=self._serve, args=(judge,), daemon=True) for judge in self._judges]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # an error or Ctrl-C passes through: what runs is worth nothing any more, and is not tried again
            self._closed = True
            for judge in self._judges:
                judge.kill()
        self.close()

    def submit(
        self, candidate: Candidate | str, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        """Queue one evaluation. See Evaluator."""
        if self._closed:
            raise RuntimeError("the executor is closed")
        future: Future[Verdict] = Future()
        job = (candidate, task, protocol, secrets.randbits(SEED_BITS) if seed is None else seed)
        self._jobs.put((0, next(self._order), future, job))
        return future

    def close(self) -> None:
        """Finish what runs, cancel what waits, end the judges."""
        if self._joined:
            return
        self._closed = self._joined = True
        while True:
            try:
                future = self._jobs.get_nowait()[2]
            except queue.Empty:
                break
            future.cancel()
        for _ in self._threads:
            self._jobs.put((-1, next(self._order), None, None))
        for thread in self._threads:
            thread.join(timeout=15)
        for judge in self._judges:
            judge.kill()

    def _serve(self, judge: JudgeProcess) -> None:
        while True:
            _, _, future, job = self._jobs.get()
            if future is None:
                judge.close()
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._evaluate(judge, *job))
            except BaseException as error:
                future.set_exception(error)

    def _evaluate(
        self, judge: JudgeProcess, candidate: Candidate | str, task: Task, protocol: EvaluationProtocol, seed: int
    ) -> Verdict:
        failure: HarnessError | None = None
        verdict: Verdict | None = None
        num_lost = 0
        for attempt in range(MAX_TRIES):
            try:
                # a retry must not meet the draws that the candidate has seen
                verdict = judge.evaluate(
                    candidate, task, protocol, seed=(seed + attempt) % (1 << SEED_BITS), progress=self._progress
                )
                if verdict.complete:
                    return verdict
            except ReferenceFailedError:
                raise
            except HarnessError as error:
                if self._closed:
                    raise
                failure = error
                num_lost += isinstance(error, JudgeError)
                log.warning("evaluation of %s: %s; trying again", task.task_id, error)
                judge.kill()
        if verdict is not None:
            return verdict
        if num_lost == MAX_TRIES and isinstance(candidate, Candidate):
            return _brought_down(candidate, task, protocol, self.device, str(failure))
        assert failure is not None
        raise failure


def _brought_down(
    candidate: Candidate, task: Task, protocol: EvaluationProtocol, device: str, reason: str
) -> Verdict:
    graphs = [
        GraphVerdict(
            graph=graph.name,
            graph_hash=graph.content_hash,
            outcome=Outcome.RUNTIME_ERROR,
            message=f"brought down two fresh judges: {reason}",
        )
        for graph in task.graphs
    ]
    scores = score_verdict(graphs, protocol.scoring, protocol.slowdown_exponent)
    return Verdict(
        candidate_hash=candidate.candidate_hash,
        task_id=task.task_id,
        task_hash=task.content_hash,
        protocol=protocol.name,
        device=device,
        complete=True,
        as_score=scores.as_score,
        as_covered=scores.as_covered,
        es=scores.es,
        disabled_layers=list(protocol.disabled_layers),
        graphs=graphs,
    )
