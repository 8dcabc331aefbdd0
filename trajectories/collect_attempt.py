"""AttemptRunner: one attempt of a collection: policies behind the gate, the agent, and what is kept of it when."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping

from data.task import Task
from eval_harness.executor import Evaluator
from trajectories.agents import AttemptSetup, make_agent, policy_settings
from trajectories.budget import Budget
from trajectories.collect_config import CollectConfig
from trajectories.collect_meters import AnswerGate, GatedPolicy
from trajectories.environment import AttemptCancelledError
from trajectories.ledger import Ledger
from trajectories.policies import PolicyFactory, make_policy
from trajectories.record import INFRASTRUCTURE_STOPS, StopReason, Trajectory, Usage
from trajectories.rollout import RolloutHooks, trajectory_id
from trajectories.store import TrajectoryStore

_POLL_S = 0.5
"""How often a wait for the budget looks whether the run is being stopped."""


class AttemptRunner:
    """Thread-safe: `run` may be called for different attempts at once."""

    def __init__(
        self,
        config: CollectConfig,
        *,
        store: TrajectoryStore,
        evaluator: Evaluator,
        ledger: Ledger,
        budget: Budget,
        gate: AnswerGate,
        cancel: threading.Event,
        closed: threading.Event,
        factories: Mapping[str, PolicyFactory] | None,
    ) -> None:
        """cancel: ends attempts at the next moment that loses nothing. closed: nothing is written any more."""
        self._config, self._store, self._evaluator, self._factories = config, store, evaluator, factories
        self._ledger, self._budget, self._gate = ledger, budget, gate
        self._cancel, self._closed = cancel, closed
        self._agent = make_agent(config.agent, AttemptSetup(*config.protocols(), config.prompt))

    def run(self, task: Task, attempt_index: int) -> Trajectory:
        """Begin an attempt, or go on with it. Raises UserError and AttemptCancelledError."""
        name = trajectory_id(task.task_id, attempt_index)
        policies = [
            GatedPolicy(make_policy(settings, factories=self._factories), self._gate)
            for settings in policy_settings(self._agent, self._config.policy)
        ]
        seed = attempt_seed(self._config.seed, task.task_id, attempt_index)
        for policy in policies:
            policy.choose(task, attempt_index=attempt_index, seed=seed)
        earlier = self._store.load(name)
        # an attempt that goes on is led through what is stored already: until then the stored record is ahead
        ahead = earlier if all(policy.is_stateless for policy in policies) else None

        def keep(trajectory: Trajectory) -> None:
            if self._closed.is_set():  # a worker that outlived the grace: the folder may be another run's by now
                raise AttemptCancelledError
            has_ended = trajectory.stop_reason is not None and trajectory.stop_reason not in INFRASTRUCTURE_STOPS
            if ahead is None or has_ended or not _is_behind(trajectory, ahead):
                self._store.write(trajectory)

        def before_answer() -> StopReason | None:
            while not self._cancel.is_set():
                if self._budget.take(name) is None:
                    return None
                if self._budget.spent is not None:
                    return StopReason.BUDGET_LIMIT
                self._budget.wait(timeout_s=_POLL_S)  # the answers under way may leave some of it
            raise AttemptCancelledError

        def after_answer(_: str, turn: int, usage: Usage) -> None:
            teacher = max(policies, key=lambda policy: policy.answered_at).teacher
            self._ledger.append(name, turn, usage, teacher=teacher, task_id=task.task_id)
            self._budget.book(name, usage.cost_usd, usage.input_tokens + usage.output_tokens)

        try:
            return self._agent.run(
                task,
                policies,
                self._evaluator,
                self._config.limits,
                seed=seed,
                attempt_index=attempt_index,
                hooks=RolloutHooks(
                    keep=keep,
                    before_answer=before_answer,
                    after_answer=after_answer,
                    cancelled=self._cancel.is_set,
                ),
                earlier=earlier,
            )
        finally:
            self._budget.give_back(name)


def attempt_seed(seed: int, task_id: str, attempt_index: int) -> int:
    """The policy's seed in an attempt, in 0 .. 2^31 - 1: the same whatever else is collected."""
    return int.from_bytes(hashlib.sha256(f"{seed} {task_id} {attempt_index}".encode()).digest()[:4], "big") >> 1


def _is_behind(trajectory: Trajectory, stored: Trajectory) -> bool:
    """Whether a record is an earlier state of the stored one; to write it would lose what was done after it."""
    num_messages, num_evaluations = len(trajectory.messages), len(trajectory.evaluations)
    return (
        (num_messages, num_evaluations) != (len(stored.messages), len(stored.evaluations))
        and trajectory.messages == stored.messages[:num_messages]
        and trajectory.evaluations == stored.evaluations[:num_evaluations]
    )
