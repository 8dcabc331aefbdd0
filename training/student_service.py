"""StudentService: a student that answers, and its turns with the evaluator on GPUs that both use."""

from __future__ import annotations

import _thread
import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from eval_harness.executor import expand_devices
from training.gpu_turns import GpuTurns, TurnCounts, marked_as_yielding
from training.serve import Pausable, VllmServer
from trajectories.policy import Policy

if TYPE_CHECKING:
    from training.student_policy import LoadedStudent


@dataclass
class StudentService:
    """A student that answers."""

    make_policy: Callable[[Mapping[str, Any]], Policy]
    """A PolicyFactory: settings (ignored) -> a policy for one attempt."""
    kind: str
    """vllm, endpoint, transformers."""
    description: dict[str, Any]
    """For the run's record."""
    num_gpus: int = 0
    """That we hold for it."""
    server: VllmServer | None = None
    turns: GpuTurns | None = None
    shared_devices: list[str] = field(default_factory=list)

    def explain(self, error: BaseException) -> BaseException:
        """What ended the run, by its cause where the server is the cause."""
        if self.turns is not None and self.turns.error is not None:
            return self.turns.error
        died = self.server.failure() if self.server is not None else None
        return died or error

    @property
    def counts(self) -> TurnCounts | None:
        return self.turns.counts if self.turns is not None else None


@contextlib.contextmanager
def taking_turns(
    service: StudentService,
    pausable: Pausable,
    num_under_way: Callable[[], int],
    *,
    start: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Start a server; where it shares GPUs, with their locks held, and in turns with the evaluator from then on."""
    if not service.shared_devices:
        start()
        yield
        return
    turns = service.turns = GpuTurns(
        service.shared_devices, pausable, num_under_way=num_under_way, on_failure=lambda: _stop(service)
    )
    try:
        turns.take()
        start()
        with marked_as_yielding(service.server.pid if service.server is not None else None):
            turns.start()
            yield
    finally:
        turns.close()


def _stop(service: StudentService) -> bool:
    """End a run whose server cannot be paused: our own server with its requests, else the run itself."""
    if service.server is not None:
        service.server.close()
        return True
    _thread.interrupt_main()
    return False


class LockedStudent:
    """A student in this process, paused between two answers by its own lock."""

    def __init__(self, student: LoadedStudent) -> None:
        self._student = student

    def pause(self) -> None:
        self._student.lock.acquire()

    def resume(self) -> None:
        self._student.lock.release()


def choose_gpus(wanted: int, evaluator: list[int], num_visible: int) -> tuple[list[int], list[int]]:
    """(GPUs of a server, those of them that it shares with the evaluator): free ones if there are enough.

    Raises UserError if there are fewer than wanted.
    """
    if wanted > num_visible:
        raise UserError(
            f"server: tensor_parallel x data_parallel is {wanted}, and {num_visible} GPUs are visible; lower them"
        )
    free = [gpu for gpu in range(num_visible) if gpu not in evaluator]
    chosen = free[:wanted] if len(free) >= wanted else [*free, *evaluator][:wanted]
    return sorted(chosen), sorted(set(chosen) & set(evaluator))


def device_indices(device: str) -> list[int]:
    """CUDA indices of the evaluator's devices."""
    if not device.startswith("cuda"):
        return []
    return [int(each.partition(":")[2] or 0) for each in expand_devices(device)]


def num_visible_gpus() -> int:
    """Of CUDA, by torch; 0 without it."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()  # asks the driver's management library: makes no CUDA context here
