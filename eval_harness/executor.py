"""Where evaluations run: callers depend on the Evaluator protocol only. Loads without torch.

LocalExecutor: judge processes on this machine. RayExecutor (ray_executor.py): judges on a Ray cluster. HttpEvaluator
(http_evaluator.py): somebody else's service (serving.py). executor_config.py chooses among them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import UserError
from eval_harness.judge.process import JudgeProcess
from eval_harness.judge_pool import DEFAULT_MAX_WAITING, JudgePool
from eval_harness.pool_records import Progress
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict

DEFAULT_IN_FLIGHT = 32


class Evaluator(Protocol):
    """Evaluates candidates; thread-safe. Failures of ours surface as HarnessError from the future."""

    device: str

    def submit(
        self, candidate: Candidate | str, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        """Queue one evaluation of a candidate, or of a baseline by name. seed None draws a secret one."""
        ...

    def close(self) -> None: ...


class LocalExecutor(JudgePool):
    """Judges on this machine. A context manager.

    One evaluation at a time uses a device, whoever asks: judges share its file lock with those of other processes.
    """

    def __init__(
        self,
        device: str | Sequence[str] = "cpu",
        num_judges: int = 1,
        *,
        progress: Progress | None = None,
        max_waiting: int = DEFAULT_MAX_WAITING,
    ) -> None:
        """device: "cpu", "cuda:i", "cuda" (every visible GPU), several with commas, or a list. num_judges: for each."""
        devices = expand_devices(device)
        is_one = isinstance(device, str) and "," not in device
        self.device = str(device) if is_one else devices[0].partition(":")[0]
        judges = [JudgeProcess(each) for _ in range(num_judges) for each in devices]
        super().__init__(judges, progress=progress, max_waiting=max_waiting)


def expand_devices(device: str | Sequence[str]) -> list[str]:
    """The devices meant: "cuda" is every GPU that this process may see. Imports torch for that only."""
    if device == "cuda":
        import torch

        # asks the driver's management library: creates no CUDA context here
        return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cuda:0"]
    devices = device.split(",") if isinstance(device, str) else list(device)
    if not devices or len(set(devices)) != len(devices):
        raise UserError(f"devices {devices}: name each device once, and at least one")
    return devices


def evaluate_all(
    evaluator: Evaluator,
    requests: Iterable[tuple[Candidate | str, Task]],
    *,
    protocol: EvaluationProtocol,
    max_in_flight: int = DEFAULT_IN_FLIGHT,
) -> Iterator[Verdict]:
    """Verdicts in the order of the requests, which are read as they are needed.

    An evaluation's error is raised at its place; then, and when the iterator is closed early, what still waits is
    cancelled.
    """
    in_flight: deque[Future[Verdict]] = deque()
    try:
        for candidate, task in requests:
            if len(in_flight) >= max_in_flight:
                yield in_flight.popleft().result()
            in_flight.append(evaluator.submit(candidate, task, protocol=protocol))
        while in_flight:
            yield in_flight.popleft().result()
    finally:
        for future in in_flight:
            future.cancel()
