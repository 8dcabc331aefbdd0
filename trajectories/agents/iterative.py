"""IterativeAgent: PassNet's PassAgent: one policy, one conversation, the two tools, until it stops or a limit does.

The loop itself is rollout.py's, which GRPO and the student's evaluation use without an agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from data.task import Task
from eval_harness.errors import UserError
from eval_harness.executor import Evaluator
from trajectories.agents import AttemptSetup
from trajectories.environment import PassEnvironment
from trajectories.limits import AgentLimits
from trajectories.policy import Policy
from trajectories.record import Trajectory
from trajectories.rollout import RolloutHooks, run_rollout


class IterativeAgentConfig(BaseModel):
    """It has no settings of its own: what it may use is the budget, how it is asked is the prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class IterativeAgent:
    """Thread-safe; see Agent."""

    num_policies = 1

    def __init__(self, config: IterativeAgentConfig, setup: AttemptSetup) -> None:
        self.config, self.setup = config, setup

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
        """See Agent.run. An interrupted attempt goes on if its policy keeps no state, and begins anew if it does."""
        if len(policies) != self.num_policies:
            raise UserError(f"agent.kind: iterative takes one policy, not {len(policies)}; use `kind: mixture` to mix")
        policy, hooks = policies[0], hooks or RolloutHooks()
        if not getattr(policy, "is_stateless", False):
            earlier = None
        environment = PassEnvironment(
            task,
            evaluator,
            protocol=self.setup.protocol,
            limits=budget,
            prompt=self.setup.prompt,
            known_evaluations=earlier.evaluations if earlier else (),
            cancelled=hooks.cancelled,
        )
        return run_rollout(
            policy,
            environment,
            attempt_index=attempt_index,
            seed=seed,
            final_protocol=self.setup.final_protocol,
            evaluate_finally=self.setup.final_protocol is not None,
            earlier=earlier,
            hooks=hooks,
            agent=self.describe(),
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": "iterative", **self.config.model_dump(mode="json")}
