"""FreshVerdicts: a folder of fresh verdicts of candidates and baselines, each stored as it comes: a second run goes on.

Only complete verdicts are kept. What is evaluated here leaves an attempt, so every evaluation has a seed of its own,
which no cache of verdicts serves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError
from eval_harness.executor import DEFAULT_IN_FLIGHT, Evaluator
from eval_harness.presets import EvaluationProtocol
from eval_harness.retries import draw_seed
from eval_harness.verdict import Verdict
from trajectories.store import hash_identity, write_atomically

Subject = Candidate | str
"""A candidate, or a baseline by name."""


class FreshVerdicts:
    """Verdicts of one protocol. Not thread-safe."""

    def __init__(
        self, folder: Path, evaluator: Evaluator, protocol: EvaluationProtocol, *, max_retries: int = 2
    ) -> None:
        """max_retries: of an evaluation that came back UNSTABLE."""
        self.folder, self._evaluator, self._protocol, self._max_retries = folder, evaluator, protocol, max_retries

    def evaluate(
        self,
        requests: Iterable[tuple[str, Subject, Task]],
        *,
        on_done: Callable[[str], None] = lambda key: None,
    ) -> dict[str, Verdict]:
        """Key -> verdict of each (key, subject, task): the stored one, else evaluated now, many at a time.

        An UNSTABLE verdict of the last try is returned, and tried again by the next call. Raises HarnessError that
        names the task on which the harness failed, with all that was finished stored.
        """
        waiting = list(requests)
        waiting.reverse()
        tries: dict[str, int] = {}
        running: dict[Future[Verdict], tuple[str, Subject, Task]] = {}
        verdicts: dict[str, Verdict] = {}
        try:
            while waiting or running:
                while waiting and len(running) < DEFAULT_IN_FLIGHT:
                    request = waiting.pop()
                    if (stored := self._stored(request)) is not None:
                        verdicts[request[0]] = stored
                        on_done(request[0])
                        continue
                    seed = draw_seed()
                    future = self._evaluator.submit(request[1], request[2], protocol=self._protocol, seed=seed)
                    running[future] = request
                # with a timeout: wait() alone does not end for a future that was cancelled before it ran
                for future in wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done:
                    request = running.pop(future)
                    key = request[0]
                    verdict = self._result(future, request)
                    tries[key] = tries.get(key, 0) + 1
                    if not verdict.complete and tries[key] <= self._max_retries:
                        waiting.append(request)
                        continue
                    self._store(request, verdict)
                    verdicts[key] = verdict
                    on_done(key)
        finally:
            for future in running:
                future.cancel()
        return verdicts

    def _result(self, future: Future[Verdict], request: tuple[str, Subject, Task]) -> Verdict:
        try:
            return future.result()
        except HarnessError as error:
            what = request[1] if isinstance(request[1], str) else "the best pass"
            raise HarnessError(
                f"task {request[2].task_id}: {what} could not be evaluated ({error}); the same command goes on"
            ) from error

    def path(self, subject: Subject, task: Task) -> Path:
        """Where a verdict is stored: by what was evaluated, on what, how, and where."""
        name = subject if isinstance(subject, str) else subject.candidate_hash[:24]
        how = hash_identity({"protocol": self._protocol.model_dump(mode="json"), "device": self._evaluator.device})
        # two tasks may hold the same graphs
        of_task = f"{task.content_hash[:16]}-{hash_identity({'task_id': task.task_id})[:8]}"
        return self.folder / f"{self._protocol.name}-{how[:12]}" / name / f"{of_task}.json"

    def _stored(self, request: tuple[str, Subject, Task]) -> Verdict | None:
        _, subject, task = request
        try:
            verdict = Verdict.model_validate(json.loads(self.path(subject, task).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None
        return verdict if verdict.complete and verdict.task_id == task.task_id else None

    def _store(self, request: tuple[str, Subject, Task], verdict: Verdict) -> None:
        if not verdict.complete:
            return
        path = self.path(request[1], request[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, verdict.model_dump_json(indent=1) + "\n")
