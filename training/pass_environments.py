"""PassEnvironments for trainers with a turn loop of their own (verifiers, TRL): set-up, rows of a dataset, reward.

Our own GRPO (grpo.py) needs none of this: it owns its loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.task import Task
from eval_harness.errors import HarnessError, UserError
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol, load_protocol
from training.rewards import Reward, RewardConfig, RolloutFacts, check_reward_protocol, reward_of
from trajectories.environment import PassEnvironment, StepResult
from trajectories.limits import AgentLimits
from trajectories.prompts import PromptConfig, render_messages
from trajectories.record import Message


@dataclass(frozen=True)
class EnvironmentSetup:
    """What every attempt of a run has in common; may be used from several threads."""

    tasks: Sequence[Task]
    evaluator: Evaluator
    """The caller's to close."""
    protocol: EvaluationProtocol = field(default_factory=lambda: load_protocol("reward"))
    limits: AgentLimits = field(default_factory=lambda: AgentLimits(max_turns=8))
    prompt: PromptConfig = field(default_factory=PromptConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)

    def __post_init__(self) -> None:
        """Raises UserError for no tasks, two of one name, or a protocol that no reward is made from."""
        if not self.tasks:
            raise UserError("tasks: there are none; name a task source such as mini")
        if len(self.task_by_id) < len(self.tasks):
            raise UserError("tasks: two of them have one task_id; name each once")
        check_reward_protocol(self.protocol)

    @property
    def task_by_id(self) -> Mapping[str, Task]:
        return {task.task_id: task for task in self.tasks}

    def rows(self) -> list[dict[str, Any]]:
        """One a task: `prompt` (messages in OpenAI's form) and `task_id`."""
        rows = []
        for task in self.tasks:
            messages = render_messages(task, self.evaluator.device, self.limits.max_turns, self.prompt)
            rows.append({"prompt": [message.to_openai() for message in messages], "task_id": task.task_id})
        return rows

    def start(self, task_id: str) -> Attempt:
        """A new attempt. Raises UserError for a task that is not there."""
        task = self.task_by_id.get(task_id)
        if task is None:
            raise UserError(f"task_id {task_id}: none of this environment's tasks; use the rows that it gave")
        environment = PassEnvironment(
            task, self.evaluator, protocol=self.protocol, limits=self.limits, prompt=self.prompt
        )
        environment.reset()
        return Attempt(environment, self.reward)


@dataclass
class Attempt:
    """One attempt under way, and what its reward is made from."""

    environment: PassEnvironment
    reward_config: RewardConfig
    num_malformed: int = 0
    num_tokens: int = 0
    """Tokens that the student generated, as far as the trainer says them."""
    failure: str | None = None
    """Our failure that ended it; its reward is then None."""

    @property
    def has_ended(self) -> bool:
        return self.failure is not None or self.environment.stop_reason is not None

    def step(self, message: Message) -> StepResult:
        """Execute one assistant message. Raises HarnessError, noted as our failure."""
        try:
            result = self.environment.step(message)
        except HarnessError as error:
            self.failure = f"{type(error).__name__}: {error}"
            raise
        self.num_malformed += result.num_malformed
        return result

    def facts(self) -> RolloutFacts:
        return RolloutFacts(
            verdicts=[(record.turn, record.verdict) for record in self.environment.evaluations],
            num_turns=self.environment.num_turns,
            num_malformed=self.num_malformed,
            num_completion_tokens=self.num_tokens,
            infrastructure_failure=self.failure is not None,
            stop_reason=self.environment.stop_reason,
        )

    def reward(self) -> Reward:
        return reward_of(self.facts(), self.reward_config)
