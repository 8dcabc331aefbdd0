"""AgentLimits: what one attempt may use, and which limit ends it. No clock and no counting of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from eval_harness.verdict import Verdict
from trajectories.record import StopReason


class AgentLimits(BaseModel):
    """The budget of one attempt. Looked at between turns: the turn that exceeds a limit is the last one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_turns: int = Field(default=50, ge=1)
    """Answers of the policy."""
    max_evaluations: int | None = Field(default=None, ge=1)
    """Verdicts an attempt; the attempt ends with the last. An unchanged pass folder costs none."""
    patience: int | None = Field(default=None, ge=1)
    """End after so many verdicts in a row without a gain in covered AS; None: never. Unstable ones do not count."""
    min_gain: float = Field(default=0.01, ge=0)
    """What `patience` takes for a gain, as a share of the best so far: less is noise of the clock."""
    time_limit_s: float | None = Field(default=7200.0, gt=0)
    """Wall clock of the attempt, waiting for the evaluator included."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Input and output tokens of all answers together, as the endpoint counts them."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """Dollars that the answers of the attempt may cost, by the policy's price table."""
    max_calls_a_turn: int = Field(default=16, ge=1)
    """Tool calls of one answer that are executed, in their order; those after them are answered with that."""
    max_malformed_in_a_row: int = Field(default=5, ge=1)
    """Turns in a row without one readable call; then the attempt ends as FORMAT_ERROR."""
    max_reply_chars: int = Field(default=4_000, ge=200)
    """Each tool result is clipped to this."""
    max_harness_retries: int = Field(default=0, ge=0)
    """An evaluation that failed by our fault, or came back UNSTABLE, is asked for again this often, on top of the
    executor's own retries."""


@dataclass
class Used:
    """What an attempt has used so far."""

    num_turns: int = 0
    num_tokens: int = 0
    cost_usd: float = 0.0
    malformed_in_a_row: int = 0


def exceeded_limit(
    limits: AgentLimits, used: Used, verdicts: Sequence[Verdict], *, elapsed_s: float
) -> StopReason | None:
    """The limit that ends the attempt now, the most telling first; None: go on."""
    if used.malformed_in_a_row >= limits.max_malformed_in_a_row:
        return StopReason.FORMAT_ERROR
    if limits.max_evaluations is not None and len(verdicts) >= limits.max_evaluations:
        return StopReason.EVALUATION_LIMIT
    if limits.patience is not None and verdicts_without_gain(verdicts, limits.min_gain) >= limits.patience:
        return StopReason.NO_GAIN
    if limits.max_total_tokens is not None and used.num_tokens >= limits.max_total_tokens:
        return StopReason.TOKEN_LIMIT
    if limits.max_cost_usd is not None and used.cost_usd >= limits.max_cost_usd:
        return StopReason.COST_LIMIT
    if limits.time_limit_s is not None and elapsed_s >= limits.time_limit_s:
        return StopReason.TIME_LIMIT
    return StopReason.TURN_LIMIT if used.num_turns >= limits.max_turns else None


def verdicts_without_gain(verdicts: Sequence[Verdict], min_gain: float) -> int:
    """Complete verdicts since the last one whose covered AS was above the best before it by the share min_gain."""
    best: float | None = None
    count = 0
    for verdict in verdicts:
        if not verdict.complete:
            continue
        score = verdict.as_covered or 0.0
        if best is None or score > best * (1 + min_gain):
            best, count = score, 0
        else:
            count += 1
    return count
