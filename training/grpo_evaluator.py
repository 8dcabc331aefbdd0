"""The evaluator of a GRPO process: its share of the devices, apart from the GPUs that train, or by turns on one GPU.

Judges time candidates. A GPU that generates or trains meanwhile would be in every figure, so a device that trains is
refused, or (evaluator.shared_gpu: lock) generation holds the device's lock while it works, as a judge does.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval_harness.cached_evaluator import CachedEvaluator
from eval_harness.errors import UserError
from eval_harness.executor import Evaluator, LocalExecutor
from eval_harness.executor_config import LocalExecutorConfig, RayExecutorConfig, open_executor
from eval_harness.judge.device_lock import is_waited_for, lock_path, open_lock
from eval_harness.verdict_cache import VerdictCache
from training.generation import Generated, GenerationEngine, GenerationRequest
from training.grpo_settings import EvaluatorSettings

if TYPE_CHECKING:
    from eval_harness.http_evaluator import HttpEvaluator
    from eval_harness.ray_executor import RayExecutor

logger = logging.getLogger(__name__)

_YIELD_S = 0.003
"""After the lock was let go for a judge: whoever was woken needs a moment to take it, for a file lock is not fair."""


@dataclass(frozen=True)
class LocalRank:
    """One process among those of its machine."""

    index: int
    count: int
    gpu: int | None
    """That it trains on, as it counts GPUs; None on a CPU."""


def check_sharing(settings: EvaluatorSettings, ranks: Sequence[LocalRank]) -> bool:
    """Whether judges share a GPU with training. Raises UserError where that is refused."""
    if not isinstance(settings.executor, LocalExecutorConfig):
        return False
    training = {f"cuda:{rank.gpu}" for rank in ranks if rank.gpu is not None}
    # "cuda" is every GPU that this process sees
    shared = sorted(training if "cuda" in settings.devices else training & set(settings.devices))
    if not shared:
        return False
    if settings.shared_gpu == "refuse":
        raise UserError(
            f"evaluator.devices: {', '.join(shared)} also train{'s' if len(shared) == 1 else ''} (processes "
            f"{', '.join(sorted(training))}); what is timed there would hold the training's work. Give other GPUs, "
            "launch fewer processes (--num-processes), or with one GPU set evaluator.shared_gpu=lock"
        )
    logger.warning(
        "evaluator: %s trains and judges: generation and evaluation take turns on it (the device's lock), so they do "
        "not overlap; leave memory for the judge's processes (trainer.vllm_gpu_memory_utilization)",
        ", ".join(shared),
    )
    return True


def devices_of(settings: EvaluatorSettings, rank: LocalRank) -> list[str]:
    """This process's share of the devices: every count-th one; one shared where there are fewer than processes."""
    mine = settings.devices[rank.index :: rank.count]
    return mine or [settings.devices[rank.index % len(settings.devices)]]


def open_evaluator(
    settings: EvaluatorSettings, rank: LocalRank, *, num_processes: int = 1
) -> LocalExecutor | RayExecutor | HttpEvaluator:
    """The evaluator of this process; the caller closes it. Raises UserError."""
    devices = devices_of(settings, rank)
    executor = settings.executor
    if isinstance(executor, LocalExecutorConfig):
        return LocalExecutor(
            devices if len(devices) > 1 else devices[0],
            num_judges=executor.num_judges,
            max_waiting=executor.max_waiting,
        )
    if isinstance(executor, RayExecutorConfig) and executor.num_actors is not None:
        # each process has actors of its own: together as many as configured
        executor = executor.model_copy(update={"num_actors": max(1, executor.num_actors // num_processes)})
    return open_executor(executor, device=devices[0])


@contextmanager
def sharing_repeats(evaluator: Evaluator, *, is_on: bool = True) -> Iterator[Evaluator]:
    """An evaluator that judges the same folder once for as long as the context lasts; a request with a seed of its own
    is always judged. What was judged is forgotten at the end."""
    if not is_on:
        yield evaluator
        return
    with tempfile.TemporaryDirectory(prefix="passwright-lot-") as folder:
        # the key's facts of the machine tell machines apart; here there is one evaluator
        yield CachedEvaluator(evaluator, VerdictCache(folder), machine={})


def num_places(settings: EvaluatorSettings, *, num_processes: int, num_machines: int = 1) -> int | None:
    """Judges that work at a time in the whole run, as configured; None: a service or a cluster decides."""
    executor = settings.executor
    if isinstance(executor, LocalExecutorConfig):
        # a device that several processes share has a judge of each, but times one evaluation at a time
        return len(settings.devices) * executor.num_judges * num_machines
    return executor.num_actors if isinstance(executor, RayExecutorConfig) else None


class LockedEngine:
    """An engine on a GPU that judges use too: holds the device's lock while it generates, and lets go when one waits.

    A judge holds the same lock from correctness to timing, so what it times is alone on the GPU; what of an evaluation
    launches nothing goes on beside the generation. Close it, so that the lock is free.
    """

    def __init__(self, engine: GenerationEngine, device: str) -> None:
        self._engine = engine
        self._path = lock_path(device)
        self._descriptor = open_lock(self._path)
        self._is_held = False
        self._keys: set[str] = set()
        self.is_collective, self.process_group = engine.is_collective, engine.process_group
        self.max_model_len = engine.max_model_len
        self.waited_s = 0.0
        """For judges, in all."""

    def submit(self, request: GenerationRequest) -> None:
        self._keys.add(request.key)
        self._engine.submit(request)

    def step(self) -> list[Generated]:
        if not self._keys and not self.is_collective:
            return self._engine.step()
        self._take()
        generated = self._engine.step()
        self._keys -= {each.key for each in generated}
        # None: the kernel does not say whether anybody waits
        is_wanted = is_waited_for(self._path) is not False
        if is_wanted or not self._keys:
            self._let_go()
        if is_wanted:
            time.sleep(_YIELD_S)
        return generated

    def cancel(self, key: str) -> None:
        self._keys.discard(key)
        self._engine.cancel(key)
        if not self._keys:
            self._let_go()

    def describe(self) -> dict[str, Any]:
        return self._engine.describe()

    def close(self) -> None:
        """Let go of the lock for good."""
        os.close(self._descriptor)

    def _take(self) -> None:
        if not self._is_held:
            started = time.monotonic()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self.waited_s += time.monotonic() - started
            self._is_held = True

    def _let_go(self) -> None:
        if self._is_held:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._is_held = False
