"""Attempt: one rollout on its way, its environment, conversation and ids. What of it runs in which thread is said.

begin (environment's thread) -> [next_request -> take_answer (main thread) -> step (environment's thread) -> take_result
(main thread)]* -> rollout
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from training.generation import Generated, GenerationRequest
from training.rollout_records import Rollout, RolloutLimits, RolloutRequest, Span
from training.rollout_tokens import RolloutTokenizer, RolloutTokens
from trajectories.environment import PassEnvironment, StepResult
from trajectories.policy import Policy
from trajectories.record import StopReason, Usage, storable
from trajectories.rollout import new_trajectory


@dataclass(frozen=True)
class _StudentFacts:
    """What a trajectory records of its policy: here, what the engine says of itself."""

    facts: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        return dict(self.facts)


class Attempt:
    """One rollout on its way. Either its environment or the main thread uses it, never both."""

    def __init__(
        self,
        request: RolloutRequest,
        make_environment: Callable[[RolloutRequest], PassEnvironment],
        *,
        tokenizer: RolloutTokenizer,
        limits: RolloutLimits,
        max_model_len: int,
        policy: Mapping[str, Any],
        cancelled: Callable[[], bool],
    ) -> None:
        self.request = request
        self.stop_reason: StopReason | None = None
        self.infrastructure_failure = False
        self.environment_spans: list[Span] = []
        self.tokens = RolloutTokens([])
        self._tokenizer, self._limits, self._max_model_len = tokenizer, limits, max_model_len
        self._started = self._asked = time.monotonic()
        self._generation_s = 0.0
        self._environment = environment = make_environment(request)
        own = environment.cancelled
        environment.cancelled = lambda: cancelled() or own()
        self.trajectory = new_trajectory(
            cast(Policy, _StudentFacts(policy)), environment, attempt_index=request.index, seed=request.seed
        )
        self.trajectory.trajectory_id = request.key

    def begin(self) -> None:
        """Environment's thread: the workspace and the first messages."""
        self.trajectory.messages += self._environment.reset()

    def take_prompt(self) -> None:
        """Main thread, after begin."""
        self.tokens.prompt_ids = self._tokenizer.prompt_ids(self.trajectory.messages)
        room = self._max_model_len - len(self.tokens.prompt_ids)
        if room < 1:
            self.fail(
                StopReason.CONTEXT_LIMIT,
                f"task {self.request.task.task_id}: its prompt has {len(self.tokens.prompt_ids)} tokens and the engine "
                f"takes {self._max_model_len}; raise the engine's length or lower prompt.max_chars",
            )

    def next_request(self) -> GenerationRequest:
        """Main thread: the request for the next answer."""
        self._asked = time.monotonic()
        turn = len(self.tokens.turns)
        return GenerationRequest(
            self.request.key,
            self.tokens.next_prompt(),
            min(self._limits.max_new_tokens, self._room()),
            # turns of one attempt and attempts of one group draw different numbers
            seed=(self.request.seed * 1_000_003 + turn) % 2**31,
            stop_token_ids=self._tokenizer.stop_token_ids,
        )

    def take_answer(self, generated: Generated) -> None:
        """Main thread: keep an answer; after an engine's error the attempt has ended."""
        now = time.monotonic()
        self._generation_s += now - self._asked
        if generated.finish_reason == "error" or not generated.ids:
            self.fail(StopReason.POLICY_ERROR, generated.error or "the engine generated nothing")
            return
        usage = Usage(
            input_tokens=len(self.tokens.prompt_ids) + len(self.tokens.completion_ids),
            output_tokens=len(generated.ids),
            latency_s=round(now - self._asked, 3),
        )
        self.tokens.add_answer(generated.ids, generated.logprobs)
        turn = self.trajectory.num_turns + 1
        message = self._tokenizer.read_answer(generated.ids, finish_reason=generated.finish_reason, turn=turn)
        message.usage = usage
        trajectory = self.trajectory
        trajectory.messages.append(message)
        trajectory.num_turns = turn
        trajectory.num_without_reasoning += not message.reasoning
        trajectory.usage.input_tokens += usage.input_tokens
        trajectory.usage.output_tokens += usage.output_tokens
        trajectory.usage.latency_s += usage.latency_s

    def step(self) -> StepResult:
        """Environment's thread: execute the last answer. Raises HarnessError, AttemptCancelledError."""
        begin = time.monotonic()
        try:
            result = self._environment.step(self.trajectory.messages[-1])
            if result.done and self._limits.evaluate_at_end:
                self._environment.evaluate_at_end()
        finally:
            self.environment_spans.append((begin, time.monotonic()))
        return result

    def take_result(self, result: StepResult) -> None:
        """Main thread: keep what the environment said, and end the attempt if it did, or if no further turn fits."""
        self.trajectory.messages += result.messages
        self.trajectory.num_malformed_calls += result.num_malformed
        if result.stop_reason is not None:
            self.stop_reason = result.stop_reason
            return
        start, end = self.tokens.turns[-1]
        suffix = self._tokenizer.suffix_ids(self.tokens.completion_ids[start:end], result.messages)
        if self._room() - len(suffix) < self._limits.min_new_tokens:
            self.stop_reason = StopReason.CONTEXT_LIMIT
            return
        self.tokens.add_environment(suffix)

    def fail(self, stop_reason: StopReason, error: str) -> None:
        """End the attempt by our fault."""
        self.stop_reason, self.infrastructure_failure = stop_reason, True
        self.trajectory.error = storable(error)

    def rollout(self) -> Rollout:
        """Main thread, after the end; also what the trajectory says at its end."""
        assert self.stop_reason is not None
        self.tokens.end()
        trajectory = self.trajectory
        trajectory.stop_reason = self.stop_reason
        trajectory.evaluations = list(self._environment.evaluations)
        trajectory.best_evaluation = self._environment.score()
        trajectory.duration_s = round(time.monotonic() - self._started, 3)
        evaluation_s = sum(end - begin for begin, end in self.environment_spans)
        trajectory.agent_state = {
            "group": self.request.group,
            "num_prompt_tokens": len(self.tokens.prompt_ids),
            "num_completion_tokens": len(self.tokens.completion_ids),
            "num_generated_tokens": self.tokens.num_generated,
            "generation_s": round(self._generation_s, 3),
            "evaluation_s": round(evaluation_s, 3),
        }
        return Rollout(
            request=self.request,
            tokens=self.tokens,
            trajectory=trajectory,
            stop_reason=self.stop_reason,
            infrastructure_failure=self.infrastructure_failure,
            generation_s=self._generation_s,
            evaluation_s=evaluation_s,
        )

    def _room(self) -> int:
        """Tokens that the completion may still have."""
        used = len(self.tokens.completion_ids)
        of_model = self._max_model_len - len(self.tokens.prompt_ids)
        return min(self._limits.max_completion_tokens, of_model) - used
