"""run_collect: tasks x attempts -> a collection of trajectories. Concurrent in answers, resumable after a kill.

plan (what is not finished) -> worker threads: policy + environment -> run_rollout -> store -> summary.

Attempts run in threads, since they wait: for an endpoint, or for the evaluator, which decides itself how many
evaluations run at once. What a kill leaves is on disk turn by turn; a resume skips finished attempts, goes on with
those of stateless policies and begins the others anew.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence

from tqdm import tqdm

from data.task import Task
from eval_harness.errors import HarnessError, UserError
from eval_harness.executor import Evaluator
from trajectories.collect_config import CollectConfig
from trajectories.collect_summary import CollectSummary, summarise
from trajectories.environment import AttemptCancelledError, PassEnvironment
from trajectories.ledger import Ledger
from trajectories.policies import PolicyFactory, make_policy
from trajectories.record import INFRASTRUCTURE_STOPS, StopReason, Trajectory
from trajectories.rollout import RolloutHooks, run_rollout, trajectory_id
from trajectories.store import LEDGER_FILE, TrajectoryStore, is_finished

logger = logging.getLogger(__name__)

_CLOSE_GRACE_S = 10.0
"""How long a stopped run waits for its workers; an answer that takes longer is given up, its turn is not stored."""


def run_collect(
    config: CollectConfig,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    *,
    resume: bool = True,
    factories: Mapping[str, PolicyFactory] | None = None,
    progress: bool = True,
) -> CollectSummary:
    """Collect what is not collected yet; returns (and writes) the summary of all of it.

    tasks: what config.tasks names, loaded. factories: further policy kinds. The evaluator stays the caller's to close.
    Raises UserError (configuration, key, full disk), HarnessError (too many infrastructure errors in a row) and
    KeyboardInterrupt, each after the files are closed; the same call then goes on.
    """
    tasks = list(tasks)[: config.max_tasks]
    if len({task.task_id for task in tasks}) != len(tasks):
        raise UserError("tasks: two of them have the same task_id; leave one out")
    config.protocols()
    make_policy(config.policy, factories=factories)  # a wrong setting fails here, before anything is written
    store = TrajectoryStore(config.root)
    store.open_for_writing(config.identity(tasks), resume=resume)
    try:
        return _Collection(config, tasks, evaluator, store, factories).run(progress=progress)
    finally:
        store.close()


class _Collection:
    """The state that the workers of one run share."""

    def __init__(
        self,
        config: CollectConfig,
        tasks: Sequence[Task],
        evaluator: Evaluator,
        store: TrajectoryStore,
        factories: Mapping[str, PolicyFactory] | None,
    ) -> None:
        self.config, self.tasks, self.evaluator, self.store, self.factories = config, tasks, evaluator, store, factories
        self.protocol, self.final_protocol = config.protocols()
        self.ledger = Ledger(store.root / LEDGER_FILE, budget_usd=config.budget_usd)
        self.cancel = threading.Event()
        self.closed = threading.Event()
        self.mutex = threading.Lock()
        self.errors_in_a_row = 0
        self.waiting: queue.SimpleQueue[tuple[Task, int]] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[Trajectory | BaseException | None] = queue.SimpleQueue()

    def run(self, *, progress: bool) -> CollectSummary:
        started = time.monotonic()
        # first attempts of all tasks, then second ones: a run that is stopped early has seen every task
        planned = [(task, index) for index in range(self.config.num_attempts) for task in self.tasks]
        open_attempts = [attempt for attempt in planned if not self._is_finished(*attempt)]
        for attempt in open_attempts:
            self.waiting.put(attempt)
        num_workers = min(self.config.num_workers, len(open_attempts))
        workers = [threading.Thread(target=self._work, name=f"attempt-{i}", daemon=True) for i in range(num_workers)]
        bar = tqdm(
            total=len(planned),
            initial=len(planned) - len(open_attempts),
            desc="collect",
            unit="attempt",
            disable=not progress,
        )
        try:
            for worker in workers:
                worker.start()
            self._watch(num_workers, bar)
        except KeyboardInterrupt:
            logger.warning("stopped; the same command goes on with what is left in %s", self.store.root)
            raise
        finally:
            self.cancel.set()
            deadline = time.monotonic() + _CLOSE_GRACE_S
            for worker in workers:
                worker.join(max(0.0, deadline - time.monotonic()))
            self.closed.set()
            bar.close()
        if self.ledger.is_spent:
            logger.warning("the budget of %.2f USD is spent; raise budget_usd to go on", self.config.budget_usd)
        summary = summarise(
            self.config.name,
            self.store,
            self.ledger,
            num_tasks=len(self.tasks),
            num_planned=len(planned),
            duration_s=time.monotonic() - started,
        )
        self.store.write_summary(summary.model_dump(mode="json"))
        return summary

    def _is_finished(self, task: Task, attempt_index: int) -> bool:
        stored = self.store.load(trajectory_id(task.task_id, attempt_index))
        return stored is not None and is_finished(stored)

    def _watch(self, num_running: int, bar: tqdm) -> None:
        """Follow the workers until each has said that it is done. Raises what stops the run."""
        while num_running:
            try:
                ended = self.ended.get(timeout=0.5)  # with a timeout, so that Ctrl-C is seen
            except queue.Empty:
                continue
            if ended is None:
                num_running -= 1
                continue
            if isinstance(ended, BaseException):
                raise ended
            bar.update()
            bar.set_postfix_str(f"{ended.task_id[:24]} {ended.stop_reason} {self.ledger.spent_usd:.2f} USD")

    def _work(self) -> None:
        try:
            while not self.cancel.is_set() and not self.ledger.is_spent:
                try:
                    task, attempt_index = self.waiting.get_nowait()
                except queue.Empty:
                    break
                trajectory = self._run_attempt(task, attempt_index)
                self.ended.put(trajectory)
                self._count_errors(trajectory)
        except AttemptCancelledError:
            pass
        except BaseException as error:  # handed to the main thread, which stops the run with it
            self.cancel.set()
            self.ended.put(error)
        finally:
            self.ended.put(None)

    def _count_errors(self, trajectory: Trajectory) -> None:
        """Raises HarnessError at the last that is allowed, in the worker itself, so that no further attempt begins."""
        with self.mutex:
            if trajectory.stop_reason not in INFRASTRUCTURE_STOPS:
                self.errors_in_a_row = 0
                return
            self.errors_in_a_row += 1
            logger.warning("%s: %s: %s", trajectory.trajectory_id, trajectory.stop_reason, trajectory.error)
            if self.errors_in_a_row >= self.config.max_infrastructure_errors and not self.cancel.is_set():
                raise HarnessError(
                    f"{self.errors_in_a_row} attempts in a row ended by an infrastructure error, the last: "
                    f"{trajectory.error}; when it is mended, the same command goes on where this one stopped"
                )

    def _run_attempt(self, task: Task, attempt_index: int) -> Trajectory:
        policy = make_policy(self.config.policy, factories=self.factories)
        earlier = self.store.load(trajectory_id(task.task_id, attempt_index))
        if not getattr(policy, "is_stateless", False):
            earlier = None
        environment = PassEnvironment(
            task,
            self.evaluator,
            protocol=self.protocol,
            limits=self.config.limits,
            prompt=self.config.prompt,
            known_evaluations=earlier.evaluations if earlier else (),
            cancelled=self.cancel.is_set,
        )
        return run_rollout(
            policy,
            environment,
            attempt_index=attempt_index,
            seed=attempt_seed(self.config.seed, task.task_id, attempt_index),
            final_protocol=self.final_protocol,
            evaluate_finally=self.final_protocol is not None,
            earlier=earlier,
            hooks=RolloutHooks(keep=self._keep, before_answer=self._before_answer, after_answer=self.ledger.append),
        )

    def _keep(self, trajectory: Trajectory) -> None:
        if self.closed.is_set():  # a worker that outlived the grace: the folder may be another run's by now
            raise AttemptCancelledError
        self.store.write(trajectory)

    def _before_answer(self) -> StopReason | None:
        if self.cancel.is_set():
            raise AttemptCancelledError
        return StopReason.BUDGET_LIMIT if self.ledger.is_spent else None


def attempt_seed(seed: int, task_id: str, attempt_index: int) -> int:
    """The policy's seed in an attempt, in 0 .. 2^31 - 1: the same whatever else is collected."""
    return int.from_bytes(hashlib.sha256(f"{seed} {task_id} {attempt_index}".encode()).digest()[:4], "big") >> 1
