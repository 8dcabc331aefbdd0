"""run_rollouts: many attempts at a time with one engine; the turn loop of GRPO. No rewards and no trainer.

reset -> (generate -> step of the environment -> suffix ids)* -> Rollout: tokens, mask, trajectory, verdicts

Generation is batched over the rollouts that are ready; the environments' steps, which wait for verdicts, run in
threads, so the evaluations of all rollouts go through the executor while others generate. The main thread waits for an
environment only when there is nothing to generate.

A failed evaluation or engine ends one rollout, as an infrastructure failure; a UserError (a full disk) ends them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from training.generation import GenerationEngine
from training.rollout_attempt import Attempt
from training.rollout_batch import RolloutBatch
from training.rollout_records import Rollout, RolloutHooks, RolloutLimits, RolloutRequest, RolloutTimes
from training.rollout_tokens import RolloutTokenizer
from trajectories.environment import PassEnvironment

if TYPE_CHECKING:
    from trajectories.store import TrajectoryStore

__all__ = [
    "Rollout",
    "RolloutHooks",
    "RolloutLimits",
    "RolloutRequest",
    "RolloutTimes",
    "run_rollouts",
]


def run_rollouts(
    requests: Sequence[RolloutRequest],
    engine: GenerationEngine,
    make_environment: Callable[[RolloutRequest], PassEnvironment],
    limits: RolloutLimits | None = None,
    *,
    tokenizer: RolloutTokenizer,
    store: TrajectoryStore | None = None,
    hooks: RolloutHooks | None = None,
) -> list[Rollout]:
    """Run every request; the rollouts in the order of the requests.

    make_environment: a fresh PassEnvironment each (its limits are the agent's, its evaluator may be shared).
    With a collective engine every rank of its group must call this together, with as many requests as it has.
    Raises UserError (a full disk) with all else stopped; HarnessError when another rank failed.
    """
    batch = RolloutBatch(engine, limits or RolloutLimits(), store, hooks or RolloutHooks())

    def begin() -> None:
        if len({request.key for request in requests}) < len(requests):
            raise ValueError("two requests have one key")
        policy = engine.describe()
        for request in requests:
            attempt = Attempt(
                request,
                make_environment,
                tokenizer=tokenizer,
                limits=batch.limits,
                max_model_len=engine.max_model_len,
                policy=policy,
                cancelled=lambda: batch.is_stopped,
            )
            batch.submit(attempt, first=True)

    try:
        rollouts = batch.run(begin)
    except BaseException:
        batch.abandon()
        raise
    return [rollouts[request.key] for request in requests]
