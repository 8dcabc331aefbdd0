"""RewardConfig: which score of a verdict is the reward, in which form, with which other parts. Presets are defaults."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from eval_harness.errors import UserError
from eval_harness.presets import EvaluationProtocol
from eval_harness.scores import FAILURE_SCORE, Scoring

Preset = Literal["covered", "es_t", "as"]

PRESETS: dict[str, dict[str, Any]] = {
    # the log makes each factor of speed, and each graph of a task, worth the same; format only separates equal scores:
    # it is less than what lies between the best failing pass and a correct one that covers a fifth (0.168 and 0.200)
    "covered": {"form": "log", "noise_aware": True, "weights": {"score": 1.0, "format": 0.02}},
    # PassNet proposes the plain score as the only reward
    "es_t": {"form": "linear", "noise_aware": False, "weights": {"score": 1.0}},
    "as": {"form": "linear", "noise_aware": False, "weights": {"score": 1.0}},
}
"""Preset -> what it sets where the configuration does not say otherwise."""


class RewardWeights(BaseModel):
    """What each part is multiplied with; every part is logged, whatever its weight."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    score: float = Field(default=1.0, ge=0)
    """The preset's score in the configured form."""
    correct: float = Field(default=0.0, ge=0)
    """Share of the task's graphs that are CORRECT."""
    coverage: float = Field(default=0.0, ge=0)
    """Mean coverage over the task's graphs, 0 for one that is not CORRECT."""
    format: float = Field(default=0.0, ge=0)
    """1 where something was evaluated and every call could be read; a malformed call takes a turn's share of it."""
    length: float = Field(default=0.0, ge=0)
    """0 up to length_free_tokens, -1 from length_max_tokens on, linear between (DAPO's soft punishment of length)."""


class RewardConfig(BaseModel):
    """What GRPO maximises."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Preset = "covered"
    """covered: AS with covered speedups; es_t: plain ES_t at tolerance_level; as: plain AS. The last two are PassNet's
    and keep its traps: docs/rewards.md."""
    tolerance_level: int = Field(default=-5, ge=-10, le=4)
    """t of `es_t`. From 1 on, whole classes of failure are forgiven and earn as much as an eager pass."""
    form: Literal["log", "linear"] = "log"
    """log: 1 + log10(score), so 0 for a failure (0.1), 1 for a correct pass as fast as eager, 1.3 for twice that."""
    noise_aware: bool = True
    """A speedup counts with the bound of its interval that is nearer 1, and as 1 where the interval holds 1."""
    counts: Literal["best", "last"] = "best"
    """Which of the attempt's verdicts: the one that this reward likes best, or the last."""
    violations: Literal["counted", "any"] = "counted"
    """What puts an attempt to the floor: a broken rule or a batch-variant graph in the verdict that counts, or in any
    of the attempt's. A verdict with one is worth the floor, so `counted` floors where no honest verdict was better."""
    floor: float | None = None
    """Lowest reward; None: the score part of a failing pass. A lower one punishes broken rules beyond failure."""
    max_speedup: float | None = Field(default=None, gt=1)
    """Speedups above it count as it; None: no limit. A large one is more often a bad task than a good pass."""
    scoring: Scoring = "passwright"
    """Which failures a tolerance level forgives."""
    slowdown_exponent: float = Field(default=0.0, ge=0)
    """p of the score: s^(p+1) for a correct graph slower than eager."""
    weights: RewardWeights = Field(default_factory=RewardWeights)
    """Of the parts."""
    length_free_tokens: int | None = Field(default=None, ge=0)
    """Generated tokens of an attempt that cost nothing; needed for weights.length."""
    length_max_tokens: int | None = Field(default=None, ge=1)
    """Generated tokens from which the length part is -1; needed for weights.length."""

    @model_validator(mode="before")
    @classmethod
    def _preset_fills_in(cls, data: Any) -> Any:
        """What the preset says, under what was given; weights part by part, unless a whole RewardWeights is given."""
        if not isinstance(data, dict):
            return data
        defaults = PRESETS.get(data.get("preset", "covered"), {})
        filled = defaults | data
        if isinstance(data.get("weights"), dict):
            filled["weights"] = defaults.get("weights", {}) | data["weights"]
        return filled

    @model_validator(mode="after")
    def _parts_fit_together(self) -> RewardConfig:
        free, most = self.length_free_tokens, self.length_max_tokens
        if self.weights.length and (free is None or most is None):
            raise ValueError("weights.length: set length_free_tokens and length_max_tokens too")
        if free is not None and most is not None and free >= most:
            raise ValueError(f"length_free_tokens {free} must be below length_max_tokens {most}")
        if self.floor is not None and self.floor > self.failing_score + 1e-9:
            raise ValueError(f"floor {self.floor} is above what a failing pass gets ({self.failing_score:g}); lower it")
        if not any((self.weights.score, self.weights.correct, self.weights.coverage)):
            raise ValueError("weights: score, correct and coverage are all 0; nothing of the verdict would count")
        return self

    @property
    def failing_score(self) -> float:
        """Weighted score part of a pass that failed for good; also of an attempt without a verdict."""
        return self.weights.score * self.worth_of(FAILURE_SCORE)

    @property
    def lowest(self) -> float:
        """The floor that holds."""
        return self.failing_score if self.floor is None else self.floor

    def worth_of(self, score: float) -> float:
        """A score in the configured form."""
        return score if self.form == "linear" else 1.0 + math.log10(score)

    def length_value(self, num_tokens: int) -> float:
        """The length part, -1..0."""
        free, most = self.length_free_tokens, self.length_max_tokens
        if free is None or most is None or num_tokens <= free:
            return 0.0
        return -min(1.0, (num_tokens - free) / (most - free))


def check_reward_protocol(protocol: EvaluationProtocol) -> None:
    """Refuse, with a UserError, a protocol whose verdicts a reward cannot or must not be made from."""
    if protocol.name == "passnet":
        raise UserError(
            "protocol: passnet is never used for a reward (it times in the candidate's process); use reward"
        )
    if not protocol.timing:
        raise UserError("protocol.timing: false leaves verdicts without a score; a reward needs the clock, remove it")
    if protocol.disabled_layers:
        layers = ", ".join(protocol.disabled_layers)
        raise UserError(f"protocol.disabled_layers: {layers} would let a student learn to cheat; remove it")
    if protocol.clock == "upstream":
        raise UserError("protocol.clock: upstream is never used for a reward; use paired")
