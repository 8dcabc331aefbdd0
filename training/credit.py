"""Credit: which tokens of an attempt get which advantage. One for the whole attempt, or one for each turn.

turn rewards -> reward to go -> less the mean of the group's others at the same turn -> one value a token (B, T).

TRL makes the advantages of whole attempts itself; those here replace them where `credit: turn` is asked for. Attempts
without a reward have advantage 0 and are in nobody's baseline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import torch

TurnRewards = Sequence[float]
"""Of one attempt, its turns in order (rewards.turn_rewards)."""

_TINY = 1e-9
"""Root mean square of a group's advantages below which it holds no signal."""


class CreditConfig(BaseModel):
    """How an attempt's reward is shared out among its tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["attempt", "turn"] = "attempt"
    """attempt: every generated token has the attempt's advantage, as TRL computes it. turn: the advantage of its turn,
    from what was gained in that turn and later."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """Factor a turn on later gains, for `turn`."""
    scale: Literal["none", "group"] = "group"
    """For `turn`: group divides by the root mean square of the group's advantages, over all turns; none does not, so
    that groups with small gains move the student little (as dr_grpo wants it)."""


def rewards_to_go(rewards: TurnRewards, *, discount: float = 1.0) -> list[float]:
    """For each turn, what is gained in it and later, discounted."""
    to_go, later = [], 0.0
    for reward in reversed(rewards):
        later = reward + discount * later
        to_go.append(later)
    return to_go[::-1]


def leave_one_out(values: Sequence[float | None]) -> list[float | None]:
    """Each value less the mean of the others; None stays None and is in no mean; a value alone has 0.

    The results of two and more values sum to 0 up to rounding.
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return [None if value is None else 0.0 for value in values]
    mean, share = math.fsum(known) / len(known), len(known) / (len(known) - 1)
    return [None if value is None else share * (value - mean) for value in values]


def turn_advantages(group: Sequence[TurnRewards | None], config: CreditConfig | None = None) -> list[list[float]]:
    """Advantages of each turn of each attempt of one group; [] for an attempt without a reward (None).

    The baseline of a turn is the mean reward to go of the other attempts that have that turn; where no other has it,
    that of an attempt which has ended: 0. So a turn that all have sums to 0 over the group.
    """
    config = config or CreditConfig(mode="turn")
    to_go = [None if rewards is None else rewards_to_go(rewards, discount=config.discount) for rewards in group]
    advantages: list[list[float]] = [[] for _ in group]
    if sum(values is not None for values in to_go) < 2:  # nobody to compare with
        return [[0.0] * len(values) if values else [] for values in to_go]
    for turn in range(max(len(values) for values in to_go if values is not None)):
        at_turn = [values[turn] if values is not None and turn < len(values) else None for values in to_go]
        alone = sum(value is not None for value in at_turn) == 1
        centred = at_turn if alone else leave_one_out(at_turn)
        for mine, value in zip(advantages, centred, strict=True):
            if value is not None:
                mine.append(value)
    return _scaled(advantages) if config.scale == "group" else advantages


def token_advantages(
    advantages: Sequence[Sequence[float]],
    turns: Sequence[Sequence[tuple[int, int]]],
    *,
    width: int,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """(B, width) float32: the advantage of its turn at each completion token of a turn, 0 elsewhere.

    turns: for each attempt, the (start, end) of each turn's generated tokens in its completion. An attempt with no
    advantages (no reward) is a row of zeros. Raises ValueError where turns and advantages do not fit together.
    """
    import torch

    table = torch.zeros((len(turns), width), dtype=torch.float32)
    for row, (values, spans) in enumerate(zip(advantages, turns, strict=True)):
        if values and len(values) != len(spans):
            raise ValueError(f"attempt {row}: {len(values)} turns with an advantage, {len(spans)} with tokens")
        for value, (start, end) in zip(values, spans, strict=False):
            if not 0 <= start <= end <= width:
                raise ValueError(f"attempt {row}: turn at {start}:{end} lies outside a completion of {width} tokens")
            table[row, start:end] = value
    return table.to(device)


def _scaled(advantages: list[list[float]]) -> list[list[float]]:
    flat = [value for values in advantages for value in values]
    size = math.sqrt(math.fsum(value * value for value in flat) / len(flat)) if flat else 0.0
    if size < _TINY:
        return [[0.0] * len(values) for values in advantages]
    return [[value / size for value in values] for values in advantages]
