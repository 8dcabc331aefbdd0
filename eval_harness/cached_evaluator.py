"""CachedEvaluator: an Evaluator in front of another, that serves repeats from a VerdictCache. Loads without torch.

    request -> has a seed of its own? through -> stored? served -> in flight already? shared -> evaluated and stored
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.executor import Evaluator, LocalExecutor
from eval_harness.machine import describe_machine
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict
from eval_harness.verdict_cache import DEFAULT_MAX_MB, VerdictCache, is_kept, verdict_key

log = logging.getLogger(__name__)


class CachedEvaluator:
    """Thread-safe. Closing it closes the evaluator behind it."""

    def __init__(
        self, evaluator: Evaluator, cache: VerdictCache, *, machine: Mapping[str, Any] | None = None
    ) -> None:
        """machine: facts of where the evaluator's judges run, if that is not this machine."""
        self.device = evaluator.device
        self.num_served = 0
        """Requests answered from the cache, or by sharing another's evaluation."""
        self._evaluator = evaluator
        self._cache = cache
        self._machine = machine if machine is not None else describe_machine(evaluator.device)
        self._mutex = threading.RLock()
        self._running: dict[str, _Shared] = {}

    def submit(
        self,
        candidate: Candidate | str,
        task: Task,
        *,
        protocol: EvaluationProtocol,
        seed: int | None = None,
        **options: Any,
    ) -> Future[Verdict]:
        """See Evaluator. With a seed, or with integrity layers switched off, the request goes through untouched."""
        if seed is not None or protocol.disabled_layers:
            return self._evaluator.submit(candidate, task, protocol=protocol, seed=seed, **options)
        key = verdict_key(candidate, task, protocol, device=self.device, machine=self._machine)
        with self._mutex:
            shared = self._running.get(key)
            if shared is not None and not shared.is_abandoned:
                self.num_served += 1
                return shared.join()
            if (stored := self._cache.get(key)) is not None:
                self.num_served += 1
                served: Future[Verdict] = Future()
                served.set_result(stored.model_copy(update={"from_cache": True}))
                return served
            shared = self._running[key] = _Shared(self._mutex)
            first = shared.join()
        try:
            # outside the mutex: a full queue blocks
            inner = self._evaluator.submit(candidate, task, protocol=protocol, seed=None, **options)
        except BaseException as error:
            self._forget(key, shared)
            shared.settle(None, error)
            raise
        shared.begin(inner)
        inner.add_done_callback(lambda done: self._finish(key, shared, done))
        return first

    def cancel_running(self, future: Future[Verdict]) -> bool:
        """As the evaluator's, if nobody else waits for the same evaluation."""
        if not isinstance(future, _Waiter):
            return self._evaluator.cancel_running(future)  # type: ignore[attr-defined, no-any-return]
        inner = future.shared.inner
        is_last = future.cancel() and future.shared.is_deserted
        if is_last and inner is not None:
            future.shared.is_abandoned = True  # a new request must not join what ends now
            self._evaluator.cancel_running(inner)  # type: ignore[attr-defined]
        return future.cancelled()

    def close(self) -> None:
        """Close the evaluator behind."""
        self._evaluator.close()

    def __enter__(self) -> CachedEvaluator:
        return self

    def __exit__(self, *error: Any) -> None:
        leave = getattr(self._evaluator, "__exit__", None)
        if leave is None:
            self.close()
        else:
            leave(*error)

    def _finish(self, key: str, shared: _Shared, inner: Future[Verdict]) -> None:
        verdict: Verdict | None = None
        error: BaseException | None = None
        try:
            verdict = inner.result()
        except (Exception, CancelledError) as failure:
            error = failure
        if verdict is not None and is_kept(verdict):
            self._cache.put(key, verdict)
        self._forget(key, shared)
        shared.settle(verdict, error)

    def _forget(self, key: str, shared: _Shared) -> None:
        with self._mutex:
            if self._running.get(key) is shared:
                del self._running[key]


def with_cache(evaluator: Evaluator, cache_dir: Path | None, *, max_mb: float | None = None) -> Evaluator:
    """The evaluator behind a cache in a folder; as it is without a folder, or if its judges are not on this machine."""
    if cache_dir is None:
        return evaluator
    if not isinstance(evaluator, LocalExecutor):
        log.info("no verdict cache: the judges are elsewhere, on machines that are not known here")
        return evaluator
    return CachedEvaluator(evaluator, VerdictCache(cache_dir, max_mb=max_mb or DEFAULT_MAX_MB))


class _Shared:
    """One evaluation that several callers wait for; it is cancelled when the last of them has cancelled."""

    def __init__(self, mutex: Any) -> None:
        self.inner: Future[Verdict] | None = None
        self.is_abandoned = False
        """Cancelled before it ran: a new request needs a new evaluation."""
        self._mutex = mutex
        self._waiters: list[_Waiter] = []

    @property
    def is_deserted(self) -> bool:
        with self._mutex:
            return all(waiter.cancelled() for waiter in self._waiters)

    def join(self) -> Future[Verdict]:
        waiter = _Waiter(self)
        with self._mutex:
            self._waiters.append(waiter)
        return waiter

    def begin(self, inner: Future[Verdict]) -> None:
        with self._mutex:
            self.inner = inner
        self.leave()

    def leave(self) -> None:
        """A caller may have cancelled."""
        with self._mutex:
            if self.inner is None or not self.is_deserted:
                return
            inner = self.inner
            # what runs already goes on, and the next request may join it
            self.is_abandoned = True
        if not inner.cancel():
            self.is_abandoned = False

    def settle(self, verdict: Verdict | None, error: BaseException | None) -> None:
        with self._mutex:
            waiters = list(self._waiters)
        for position, waiter in enumerate(waiters):
            if isinstance(error, CancelledError):
                waiter.cancel()
            if not waiter.set_running_or_notify_cancel():
                continue
            if verdict is None:
                waiter.set_exception(error)
            else:
                # the first asked for it; to the others it is a repeat
                waiter.set_result(verdict if position == 0 else verdict.model_copy(update={"from_cache": True}))


class _Waiter(Future):
    """One caller's view of a shared evaluation: pending until it is settled."""

    def __init__(self, shared: _Shared) -> None:
        super().__init__()
        self.shared = shared

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled:
            self.shared.leave()
        return cancelled
