"""Eager and TorchInductor through the same stages as a candidate: the rows beside which a figure is read.

A baseline has no pass: nothing is matched, and coverage stays empty. Under `apply: direct` Inductor's output is called
without guards and compared with plain eager; under `apply: compile` both go through torch.compile. Loads without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from data.task import Task
from eval_harness.errors import HarnessError
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict

Baseline = Literal["eager", "inductor"]


def evaluate_baseline(
    name: Baseline,
    tasks: Iterable[Task],
    protocol: EvaluationProtocol,
    evaluator: Evaluator,
    *,
    on_verdict: Callable[[str, Verdict | HarnessError], None] = lambda task_id, verdict: None,
) -> dict[str, Verdict]:
    """Task id -> verdict of a baseline. A task on which the harness fails is reported to on_verdict and left out."""
    futures = {task.task_id: evaluator.submit(name, task, protocol=protocol) for task in tasks}
    verdicts = {}
    for task_id, future in futures.items():
        try:
            verdicts[task_id] = future.result()
            on_verdict(task_id, verdicts[task_id])
        except HarnessError as error:
            on_verdict(task_id, error)
    return verdicts
