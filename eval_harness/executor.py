"""Where evaluations run. Callers depend on the Evaluator protocol only."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict


class Evaluator(Protocol):
    """Evaluates candidates; thread-safe. Failures of ours surface as HarnessError from the future."""

    device: str

    def submit(
        self, candidate: Candidate, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        """Queue one evaluation. seed None draws a secret one."""
        ...

    def close(self) -> None: ...
