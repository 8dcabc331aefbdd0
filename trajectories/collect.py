"""run_collect: tasks x attempts -> a collection of trajectories. Concurrent in answers, resumable after a kill.

plan (what is not finished) -> worker threads: agent (policy + environment) -> store -> index -> summary.

Attempts run in threads, since they wait: for an endpoint, or for the evaluator, which decides itself how many
evaluations run at once. What a kill leaves is on disk turn by turn; a resume skips finished attempts, goes on with
those of stateless policies and begins the others anew.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from data.task import Task
from eval_harness.errors import HarnessError, UserError
from eval_harness.executor import Evaluator
from trajectories.agents import AttemptSetup, make_agent, policy_settings
from trajectories.budget import Budget
from trajectories.collect_attempt import AttemptRunner, attempt_seed
from trajectories.collect_config import CollectConfig, asks_for_more, upgrade_identity
from trajectories.collect_index import AttemptIndex, AttemptRow
from trajectories.collect_meters import AnswerGate, MeteredEvaluator
from trajectories.collect_monitor import Monitor
from trajectories.collect_prices import why_budget_counts_nothing
from trajectories.collect_signals import StopSignals
from trajectories.collect_summary import CollectSummary, costs, summarise
from trajectories.environment import AttemptCancelledError
from trajectories.ledger import Ledger
from trajectories.plan import Plan, Shard, order_tasks
from trajectories.policies import PolicyFactory, make_policy
from trajectories.progress import Clock, Display
from trajectories.record import INFRASTRUCTURE_STOPS, Trajectory
from trajectories.store import LEDGER_FILE, TrajectoryStore

__all__ = ["CollectConfig", "attempt_seed", "run_collect"]

logger = logging.getLogger(__name__)

_CLOSE_GRACE_S = 120.0
"""How long a stopped run waits for answers under way, which are paid for; one that takes longer is given up."""
_POLL_S = 0.5


def run_collect(
    config: CollectConfig,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    *,
    resume: bool = True,
    factories: Mapping[str, PolicyFactory] | None = None,
    progress: bool = True,
    shard: Shard | None = None,
    num_judges: int | None = None,
) -> CollectSummary:
    """Collect what is not collected yet; returns (and writes) the summary of all of it.

    tasks: what config.tasks names, loaded; all of them also for a shard, which attempts its share. factories: further
    policy kinds. num_judges: of the evaluator, for the share of time in which it is busy. The evaluator stays the
    caller's to close.
    Raises UserError (configuration, key, full disk), HarnessError (too many infrastructure errors in a row) and
    KeyboardInterrupt, each after the files are closed; the same call then goes on. The first Ctrl-C or SIGTERM waits
    for the answers under way, the second stops at once.
    """
    tasks = list(tasks)[: config.max_tasks]
    if len({task.task_id for task in tasks}) != len(tasks):
        raise UserError("tasks: two of them have the same task_id; leave one out")
    protocol, final_protocol = config.protocols()
    agent = make_agent(config.agent, AttemptSetup(protocol, final_protocol, config.prompt))
    for settings in policy_settings(agent, config.policy):
        make_policy(settings, factories=factories)  # a wrong setting fails here, before anything is written
    if (why := why_budget_counts_nothing(config.policy, config.budget_usd)) is not None:
        logger.warning(why)
    store = TrajectoryStore(config.root_of(shard))
    store.open_for_writing(
        config.identity(tasks),
        resume=resume,
        shard=str(shard) if shard else None,
        upgrade=upgrade_identity,
        is_more=_asks_a_shard_for_more if shard else asks_for_more,
    )
    try:
        mine = order_tasks(tasks, seed=config.seed, order=config.order, shard=shard)
        return _Collection(config, mine, MeteredEvaluator(evaluator, num_judges), store, factories).run(
            progress=progress
        )
    finally:
        store.close()


def _asks_a_shard_for_more(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Further tasks would deal all of them anew, and two machines could get the same."""
    return stored.get("task_hashes") == wanted["task_hashes"] and asks_for_more(stored, wanted)


class _Collection:
    """The state that the workers of one run share."""

    def __init__(
        self,
        config: CollectConfig,
        tasks: Sequence[Task],
        evaluator: MeteredEvaluator,
        store: TrajectoryStore,
        factories: Mapping[str, PolicyFactory] | None,
    ) -> None:
        self.config, self.tasks, self.evaluator, self.store = config, tasks, evaluator, store
        self.ledger = Ledger(store.root / LEDGER_FILE)
        self.clock = Clock(store.root)
        self.budget = Budget(config.budget_limits, self.ledger, lambda: self.clock.total_s)
        self.index = AttemptIndex(store)
        self.plan = Plan(tasks, config.num_attempts, self.index.rows.values(), config.stop)
        self.cancel = threading.Event()
        self.closed = threading.Event()
        self.gate = AnswerGate(config.max_concurrent_answers, self.cancel.is_set)
        self.attempts = AttemptRunner(
            config,
            store=store,
            evaluator=evaluator,
            ledger=self.ledger,
            budget=self.budget,
            gate=self.gate,
            cancel=self.cancel,
            closed=self.closed,
            factories=factories,
        )
        self.mutex = threading.Lock()
        self.errors_in_a_row = 0
        self.ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        """Of each worker: None, or what the run is to be stopped with."""

    def run(self, *, progress: bool) -> CollectSummary:
        self.index.save()
        self.clock.note(event="start", config=self.config.model_dump(mode="json"))
        num_workers = min(self.config.num_workers, self.plan.num_open)
        workers = [threading.Thread(target=self._work, name=f"attempt-{i}", daemon=True) for i in range(num_workers)]
        self.monitor = Monitor(
            plan=self.plan,
            ledger=self.ledger,
            clock=self.clock,
            gate=self.gate,
            evaluator=self.evaluator,
            limits=self.config.budget_limits,
            rows=list(self.index.rows.values()),
            display=Display(is_on=progress),
        )
        with StopSignals() as signals:
            try:
                for worker in workers:
                    worker.start()
                self._watch(workers, signals)
            except BaseException as error:
                self.monitor.close()
                self._say_why(error)
                self._wait_for(workers, signals)
                raise
            finally:
                self.cancel.set()
                self.closed.set()
                with contextlib.suppress(UserError):  # a full disk is told already
                    self.monitor.tick(is_last=True)
                self.monitor.close()
                self.ledger.close()
                summary = self._write_summary()
        if (spent := self.budget.spent) is not None:
            logger.warning("the %s is spent; raise it to go on", spent)
        return summary

    def _watch(self, workers: Sequence[threading.Thread], signals: StopSignals) -> None:
        """Follow the workers until each has ended. Raises what stops the run."""
        num_running = len(workers)
        while num_running:
            with contextlib.suppress(queue.Empty):
                if (error := self.ended.get(timeout=_POLL_S)) is not None:
                    raise error
                num_running -= 1
            if signals.num_seen:
                raise KeyboardInterrupt
            if num_running:
                self.monitor.tick()

    def _say_why(self, error: BaseException) -> None:
        num = self.gate.all.num_under_way
        wait = f"; {num} answers are waited for, at most {_CLOSE_GRACE_S:.0f} s (Ctrl-C: at once)" if num else ""
        if isinstance(error, KeyboardInterrupt):
            logger.warning("stopping%s; the same command goes on with what is left in %s", wait, self.store.root)
        elif wait:
            logger.warning("stopping: %s%s", error, wait)

    def _wait_for(self, workers: Sequence[threading.Thread], signals: StopSignals) -> None:
        """Let the answers under way come in and be stored, until the grace or the user's patience ends."""
        self.cancel.set()
        deadline = time.monotonic() + _CLOSE_GRACE_S
        patience = min(signals.num_seen, 1)  # two signals may have come before this thread saw the first of them
        while any(worker.is_alive() for worker in workers):
            if time.monotonic() >= deadline or signals.num_seen > patience:
                return
            time.sleep(0.02)

    def _write_summary(self) -> CollectSummary:
        with self.mutex:
            rows = sorted(self.index.rows.values(), key=lambda row: row.trajectory_id)
        summary = summarise(
            self.config.name,
            rows,
            self.ledger,
            num_tasks=len(self.tasks),
            num_planned=self.plan.num_planned,
            num_skipped=self.plan.num_skipped,
            tasks_given_up=self.plan.reasons,
            duration_s=self.clock.elapsed_s,
            total_duration_s=self.clock.total_s,
        )
        with contextlib.suppress(UserError):
            self.store.write_summary(summary.model_dump(mode="json"), costs(rows, self.ledger))
        return summary

    # what a worker's thread does

    def _work(self) -> None:
        try:
            while not self.cancel.is_set() and not self.plan.is_done and self.budget.spent is None:
                if (taken := self.plan.take(timeout_s=_POLL_S)) is not None:
                    self._make_attempt(*taken)
            self.ended.put(None)
        except AttemptCancelledError:
            self.ended.put(None)
        except BaseException as error:  # handed to the main thread, which stops the run with it
            self.cancel.set()
            self.ended.put(error)

    def _make_attempt(self, task: Task, attempt_index: int) -> None:
        row: AttemptRow | None = None
        self.monitor.began()
        try:
            trajectory = self.attempts.run(task, attempt_index)
            with self.mutex:
                row = self.index.add(trajectory)
        finally:
            self.monitor.ended(row)
            self.plan.end(task, attempt_index, row)
        self._count_errors(trajectory)

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
