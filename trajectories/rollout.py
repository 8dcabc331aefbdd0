"""run_rollout: one attempt from the first message to the final verdict. The loop of the iterative agent.

reset -> (answer -> step -> keep)* -> one fresh strict evaluation of the best candidate -> Trajectory.

A failure of the policy's endpoint or of the harness ends the attempt with its stop reason and is retried on a resume; a
UserError (a full disk, a wrong key) goes through to the caller, with everything kept that was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError
from eval_harness.machine import describe_machine, describe_versions
from eval_harness.presets import EvaluationProtocol, load_protocol
from eval_harness.verdict import Verdict
from trajectories.environment import PassEnvironment, evaluate_with_retries
from trajectories.policy import ContextLimitError, Policy, PolicyError
from trajectories.prompts import PROMPT_VERSION
from trajectories.record import Message, StopReason, Trajectory, Usage, storable
from trajectories.tools import TOOLS


@dataclass
class RolloutHooks:
    """What a caller wants to hear of; called from the rollout's thread."""

    keep: Callable[[Trajectory], None] = lambda trajectory: None
    """After every change worth storing."""
    before_answer: Callable[[], StopReason | None] = lambda: None
    """A reason to end the attempt now (the money is spent). May raise AttemptCancelledError."""
    after_answer: Callable[[str, int, Usage], None] = lambda trajectory_id, turn, usage: None
    """What a new answer cost, before it is stored, or one that broke off for good; not called for answers taken from
    `earlier`."""
    cancelled: Callable[[], bool] = lambda: False
    """Asked while an evaluation is waited for; True raises AttemptCancelledError."""


def run_rollout(
    policy: Policy,
    environment: PassEnvironment,
    *,
    attempt_index: int = 0,
    seed: int = 0,
    final_protocol: EvaluationProtocol | None = None,
    evaluate_finally: bool = True,
    earlier: Trajectory | None = None,
    hooks: RolloutHooks | None = None,
    agent: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Run one attempt. Raises UserError and AttemptCancelledError only; other ends are stop reasons.

    final_protocol: of the final evaluation, `strict` by default; evaluate_finally=False leaves it out (GRPO).
    earlier: the unfinished record of this attempt: its answers are gone through again instead of being asked for
        (environment.known_evaluations should be its evaluations). Only for policies that keep no state of their own.
    agent: kind and settings of the agent whose attempt this is, for the record.
    """
    hooks = hooks or RolloutHooks()
    trajectory = new_trajectory(policy, environment, attempt_index=attempt_index, seed=seed)
    if agent is not None:
        trajectory.agent = str(agent["kind"])
        trajectory.agent_settings = {key: value for key, value in agent.items() if key != "kind"}
    keep = RecordKeeper(trajectory, environment, hooks, earlier)
    try:
        policy.start(environment.task, attempt_index=attempt_index, seed=seed, device=environment.evaluator.device)
        trajectory.policy = policy.describe()  # a mixture knows its teacher only now
        trajectory.messages += environment.reset()
        recorded = _recorded_answers(earlier, trajectory)
        environment.earlier_s = earlier.duration_s if earlier is not None and recorded else 0.0
        stop_reason: StopReason | None = None
        while stop_reason is None:
            answer = recorded.pop(0) if recorded else ask(policy, trajectory, hooks)
            if isinstance(answer, StopReason):
                stop_reason = answer
                break
            trajectory.messages.append(answer)
            trajectory.num_turns += 1
            trajectory.num_without_reasoning += came_without_reasoning(answer)
            add_usage(trajectory.usage, answer.usage)
            keep(unless=bool(recorded))  # an answer that was paid for survives a kill during its evaluation
            result = environment.step(answer)
            trajectory.messages += result.messages
            trajectory.num_malformed_calls += result.num_malformed
            keep(unless=bool(recorded))
            stop_reason = result.stop_reason
        if evaluate_finally and stop_reason is not StopReason.BUDGET_LIMIT:
            trajectory.final_verdict = evaluate_best(environment, final_protocol or load_protocol("strict"))
        trajectory.stop_reason = stop_reason
    except PolicyError as error:
        trajectory.stop_reason, trajectory.error = StopReason.POLICY_ERROR, storable(str(error))
    except HarnessError as error:
        trajectory.stop_reason = StopReason.HARNESS_ERROR
        trajectory.error = storable(f"{type(error).__name__}: {error}")
    keep()
    return trajectory


def trajectory_id(task_id: str, attempt_index: int) -> str:
    return f"{task_id}__{attempt_index:03d}"


def new_trajectory(policy: Policy, environment: PassEnvironment, *, attempt_index: int, seed: int) -> Trajectory:
    """The record of an attempt that has not begun."""
    task = environment.task
    return Trajectory(
        trajectory_id=trajectory_id(task.task_id, attempt_index),
        task_id=task.task_id,
        task_hash=task.content_hash,
        graph_hashes={graph.name: graph.content_hash for graph in task.graphs},
        attempt_index=attempt_index,
        policy=policy.describe(),
        prompt_version=PROMPT_VERSION,
        protocol=environment.protocol.name,
        device=environment.evaluator.device,
        seed=seed,
        tools=TOOLS,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=describe_versions(),
        machine=describe_machine("cpu"),
        usage=Usage(),
    )


class RecordKeeper:
    """Brings the record up to date with the environment and hands it to the store."""

    def __init__(
        self, trajectory: Trajectory, environment: PassEnvironment, hooks: RolloutHooks, earlier: Trajectory | None
    ) -> None:
        self.trajectory, self.environment, self.hooks = trajectory, environment, hooks
        self.started = time.monotonic()
        self.earlier_s = earlier.duration_s if earlier else 0.0

    def __call__(self, *, unless: bool = False) -> None:
        """unless: while recorded answers are gone through, the stored file is still ahead of this record."""
        if unless:
            return
        self.trajectory.evaluations = list(self.environment.evaluations)
        self.trajectory.best_evaluation = self.environment.score()
        self.trajectory.duration_s = round(self.earlier_s + time.monotonic() - self.started, 3)
        self.hooks.keep(self.trajectory)


def ask(
    policy: Policy,
    trajectory: Trajectory,
    hooks: RolloutHooks,
    *,
    messages: Sequence[Message] | None = None,
    tools: Sequence[dict[str, Any]] = TOOLS,
) -> Message | StopReason:
    """The next answer, with its turn and latency; a stop reason if there is none to be had. Raises PolicyError.

    messages: what the policy is shown; the record's own by default.
    """
    stop_reason = hooks.before_answer()
    if stop_reason is not None:
        return stop_reason
    asked = time.monotonic()
    try:
        answer = policy.answer(list(trajectory.messages if messages is None else messages), tools)
    except PolicyError as error:
        if error.lost != Usage():  # no answer came of it, but it was paid for
            hooks.after_answer(trajectory.trajectory_id, trajectory.num_turns + 1, error.lost)
        if not isinstance(error, ContextLimitError):
            raise
        trajectory.error = storable(str(error))
        return StopReason.CONTEXT_LIMIT
    usage = answer.usage or Usage()
    if not usage.latency_s:
        usage = usage.model_copy(update={"latency_s": round(time.monotonic() - asked, 3)})
    turn = trajectory.num_turns + 1
    hooks.after_answer(trajectory.trajectory_id, turn, usage)
    return answer.model_copy(update={"turn": turn, "usage": usage})


def _recorded_answers(earlier: Trajectory | None, trajectory: Trajectory) -> list[Message]:
    """The earlier record's answers, if it asks the same question; a changed prompt starts the attempt anew."""
    if earlier is None or earlier.task_hash != trajectory.task_hash:
        return []
    if earlier.messages[: len(trajectory.messages)] != trajectory.messages:
        return []
    return [message for message in earlier.messages if message.role == "assistant"]


def came_without_reasoning(answer: Message) -> bool:
    """Whether an answer showed no reasoning of its own."""
    return not answer.reasoning or answer.reasoning_policy == "summarised"


def evaluate_best(environment: PassEnvironment, protocol: EvaluationProtocol) -> Verdict | None:
    """The best candidate once more, with new seeds and from no cache; None if none has a score."""
    best = environment.score()
    if best is None:
        return None
    return evaluate_with_retries(
        environment.evaluator,
        Candidate(environment.evaluations[best].files),
        environment.task,
        protocol=protocol,
        max_retries=environment.limits.max_harness_retries,
        cancelled=environment.cancelled,
        is_fresh=True,
    )


def add_usage(total: Usage, usage: Usage | None) -> None:
    """Add one answer's usage to the totals."""
    for name in Usage.model_fields if usage else ():
        setattr(total, name, round(getattr(total, name) + getattr(usage, name), 9))
