"""Rewards: what an attempt is worth to GRPO, as named parts made from its verdicts. Pure functions; no torch, no clock.

verdicts -> speedups made noise-aware -> score of the preset -> form -> weighted parts -> snapped to 1/1024.

A failure of ours, and an attempt that ends on an UNSTABLE verdict, has no reward (None); a broken rule has the lowest
one. Which verdict counts and what is asked for: RewardConfig. Signal of a group: credit.py and difficulty_pools.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from eval_harness.errors import HarnessError
from eval_harness.scores import FAILURE_SCORE
from eval_harness.verdict import Outcome, Verdict
from training.reward_config import RewardConfig, RewardWeights, check_reward_protocol
from training.reward_scores import coverage_share, preset_score
from trajectories.record import INFRASTRUCTURE_STOPS, StopReason, Trajectory

__all__ = [
    "Reward",
    "RewardConfig",
    "RewardWeights",
    "RolloutFacts",
    "check_reward_protocol",
    "facts_of_trajectory",
    "reward_of",
    "snap",
    "turn_rewards",
]

SNAP = 1024
"""Rewards are multiples of 1/1024: identical attempts have identical rewards whatever the order of a sum, or a group's
standard deviation is not zero and its noise is normalised up to an advantage of one. A power of two is exact."""


@dataclass(frozen=True)
class RolloutFacts:
    """What a reward is made from."""

    verdicts: Sequence[tuple[int, Verdict]]
    """(turn, verdict) in the order of the evaluations; turns count from 1."""
    num_turns: int
    num_malformed: int = 0
    """Tool calls that could not be read."""
    num_completion_tokens: int = 0
    """Tokens that the student generated, over all turns."""
    infrastructure_failure: bool = False
    """The attempt ended by our fault or the machine's."""
    stop_reason: StopReason | None = None


@dataclass(frozen=True)
class Reward:
    """One attempt's reward."""

    total: float | None
    """Sum of weight times part, at least the floor, a multiple of 1/1024; None: nothing is known about the attempt."""
    parts: dict[str, float] = field(default_factory=dict)
    """Part -> its value before weighting: score, correct, coverage, format, length. Empty when total is None."""
    counted: int | None = None
    """Index into RolloutFacts.verdicts of the verdict that counts; None: none was made."""
    is_floored: bool = False
    """A broken rule or a batch-variant graph put it to the floor."""


def reward_of(facts: RolloutFacts, config: RewardConfig) -> Reward:
    """The reward of one attempt. Never raises for what an attempt can do; None is a failure of ours."""
    try:
        worth = _worths(facts, config)
    except HarnessError:  # a verdict that cannot be scored, such as one without timing
        return Reward(total=None)
    if facts.infrastructure_failure or facts.stop_reason in INFRASTRUCTURE_STOPS or _ends_unknown(facts, config):
        return Reward(total=None)
    counted = _counted(worth, config)
    is_floored = _is_floored(facts, counted, config)
    parts = _parts(facts, worth, counted, is_floored, config)
    if is_floored:
        return Reward(total=snap(config.lowest), parts=parts, counted=counted, is_floored=True)
    weights = config.weights.model_dump()
    total = sum(weights[name] * value for name, value in parts.items())
    return Reward(total=snap(max(total, config.lowest)), parts=parts, counted=counted)


def turn_rewards(facts: RolloutFacts, config: RewardConfig) -> list[float] | None:
    """What each turn added, in order; None where reward_of has none.

    They sum to the total less the score part of a failing pass. A turn has the gain in what counts (best so far: never
    negative); the last turn has what is known at the end only (format, length, a floor).
    """
    reward = reward_of(facts, config)
    if reward.total is None:
        return None
    gains = [0.0] * max(facts.num_turns, 1)
    reached = snap(config.failing_score)
    for (turn, _), value in zip(facts.verdicts, _worths(facts, config), strict=True):
        if value is None:
            continue
        now = snap(config.weights.score * value)
        if config.counts == "best":
            now = max(reached, now)
        gains[min(max(turn, 1), len(gains)) - 1] += now - reached
        reached = now
    gains[-1] += reward.total - reached
    return gains


def facts_of_trajectory(trajectory: Trajectory, *, num_completion_tokens: int | None = None) -> RolloutFacts:
    """The facts of a stored attempt; tokens by the endpoint's count unless given."""
    tokens = trajectory.usage.output_tokens if num_completion_tokens is None else num_completion_tokens
    return RolloutFacts(
        verdicts=[(record.turn, record.verdict) for record in trajectory.evaluations],
        num_turns=trajectory.num_turns,
        num_malformed=trajectory.num_malformed_calls,
        num_completion_tokens=tokens,
        infrastructure_failure=trajectory.stop_reason in INFRASTRUCTURE_STOPS,
        stop_reason=trajectory.stop_reason,
    )


def snap(value: float) -> float:
    """The nearest multiple of 1/1024."""
    return math.floor(value * SNAP + 0.5) / SNAP


def _worths(facts: RolloutFacts, config: RewardConfig) -> list[float | None]:
    """Each verdict's score in the configured form; None for one without a score. Raises HarnessError.

    A verdict that breaks a rule is worth what a failing pass is: an honest one of the same attempt goes before it.
    """
    failing = config.worth_of(FAILURE_SCORE)
    worths: list[float | None] = []
    for _, verdict in facts.verdicts:
        score = preset_score(verdict, config)
        worth = None if score is None else config.worth_of(score)
        worths.append(failing if worth is not None and _breaks_a_rule(verdict) else worth)
    return worths


def _counted(worth: Sequence[float | None], config: RewardConfig) -> int | None:
    """Index of the verdict that counts: the best, the earliest among equals, or the last."""
    known = [(value, index) for index, value in enumerate(worth) if value is not None]
    if not known:
        return None
    if config.counts == "last":
        return known[-1][1]
    return max(known, key=lambda item: (item[0], -item[1]))[1]


def _ends_unknown(facts: RolloutFacts, config: RewardConfig) -> bool:
    """Whether the last folder that was evaluated never got a complete verdict: it may have been the best one."""
    if not facts.verdicts:
        return False
    last = facts.verdicts[-1][1]
    complete = {verdict.candidate_hash for _, verdict in facts.verdicts if verdict.complete}
    if config.counts == "last":
        return not last.complete
    return not last.complete and last.candidate_hash not in complete


def _is_floored(facts: RolloutFacts, counted: int | None, config: RewardConfig) -> bool:
    if config.violations == "any":
        return any(_breaks_a_rule(verdict) for _, verdict in facts.verdicts)
    return counted is not None and _breaks_a_rule(facts.verdicts[counted][1])


def _breaks_a_rule(verdict: Verdict) -> bool:
    forbidden = (Outcome.VIOLATION, Outcome.BATCH_VARIANT)
    return bool(verdict.violations) or any(graph.outcome in forbidden for graph in verdict.graphs)


def _parts(
    facts: RolloutFacts,
    worth: Sequence[float | None],
    counted: int | None,
    is_floored: bool,
    config: RewardConfig,
) -> dict[str, float]:
    verdict = None if counted is None or is_floored else facts.verdicts[counted][1]
    score = config.worth_of(FAILURE_SCORE) if counted is None or is_floored else worth[counted]
    assert score is not None
    return {
        "score": score,
        "correct": verdict.num_correct / len(verdict.graphs) if verdict else 0.0,
        "coverage": coverage_share(verdict) if verdict else 0.0,
        "format": 0.0 if is_floored else _format(facts),
        "length": config.length_value(facts.num_completion_tokens),
    }


def _format(facts: RolloutFacts) -> float:
    """1 where something was evaluated and every call could be read; each malformed call takes a turn's share of it."""
    if not facts.verdicts or facts.stop_reason is StopReason.FORMAT_ERROR:
        return 0.0
    return max(0.0, 1.0 - facts.num_malformed / max(facts.num_turns, 1))
