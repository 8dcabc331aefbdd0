"""SearchAgent: what agents that search have in common: an attempt is made, and the search runs in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from data.task import Task
from eval_harness.executor import Evaluator
from trajectories.agents import AttemptSetup
from trajectories.agents.search_attempt import SearchAttempt
from trajectories.limits import AgentLimits
from trajectories.policy import Policy
from trajectories.record import Trajectory
from trajectories.rollout import RolloutHooks


class SearchAgent(ABC):
    """Thread-safe; see Agent. A kind of search gives `search` and `describe`."""

    num_policies = 1

    def __init__(self, setup: AttemptSetup) -> None:
        self.setup = setup

    def run(
        self,
        task: Task,
        policies: Sequence[Policy],
        evaluator: Evaluator,
        budget: AgentLimits,
        *,
        seed: int,
        attempt_index: int,
        hooks: RolloutHooks | None = None,
        earlier: Trajectory | None = None,
    ) -> Trajectory:
        """See Agent.run. An interrupted attempt goes on if its policies keep no state, and begins anew if they do."""
        attempt = SearchAttempt(
            task,
            policies,
            evaluator,
            self.setup,
            budget,
            seed=seed,
            attempt_index=attempt_index,
            hooks=hooks,
            earlier=earlier,
            agent=self.describe(),
        )
        return attempt.run(self.search)

    @abstractmethod
    def search(self, attempt: SearchAttempt) -> None:
        """Search until nothing is left to try. Raises SearchEnded at a limit, PolicyError, HarnessError."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """See Agent.describe."""
