"""What goes into run_rollouts and what comes out of it: limits, requests, rollouts, and where the time went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from eval_harness.verdict import Verdict
from training.rollout_tokens import RolloutTokens
from trajectories.record import StopReason, Trajectory


class RolloutLimits(BaseModel):
    """Token budgets and time of a batch of rollouts; turns and calls are limited by the environment's AgentLimits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_new_tokens: int = Field(default=4096, ge=1)
    """Of one answer; a longer one is cut there, and the student is told."""
    max_completion_tokens: int = Field(default=16_384, ge=1)
    """Of all turns of a rollout, what the environment writes included; then it ends as CONTEXT_LIMIT."""
    min_new_tokens: int = Field(default=64, ge=1)
    """A later turn that could not have so many tokens is not begun: the rollout ends as CONTEXT_LIMIT."""
    wall_limit_s: float | None = Field(default=3600.0, gt=0)
    """Of the whole batch. Rollouts that wait for a verdict then are infrastructure failures, those that generate end
    as TIME_LIMIT."""
    evaluate_at_end: bool = False
    """Judge the pass folder when the attempt ends with edits that have no verdict. For single-turn rollouts."""
    num_threads: int = Field(default=256, ge=1)
    """Environments that may wait for a verdict at a time."""


@dataclass(frozen=True)
class RolloutRequest:
    """One attempt that is wanted."""

    task: Task
    key: str
    """Unique; the trajectory's id."""
    group: str
    """Attempts of one group share a baseline."""
    index: int
    """Of the attempt in its group, from 0."""
    seed: int


@dataclass
class Rollout:
    """One attempt, finished."""

    request: RolloutRequest
    tokens: RolloutTokens
    """Its completion ends with the last answer; it is empty if there was none."""
    trajectory: Trajectory
    """As a collection stores it; without a final verdict."""
    stop_reason: StopReason
    infrastructure_failure: bool
    """We or the machine failed: the rollout says nothing about the student, its reward is None."""
    generation_s: float = 0.0
    """From each turn's request to its answer, all turns; other rollouts were generated at the same time."""
    evaluation_s: float = 0.0
    """In the environment, all turns, waiting for the evaluator included."""

    @property
    def verdicts(self) -> list[tuple[int, Verdict]]:
        """(turn, counted from 1; verdict) in their order; a turn may have several."""
        return [(record.turn, record.verdict) for record in self.trajectory.evaluations]

    @property
    def verdict_by_turn(self) -> dict[int, Verdict]:
        """Turn, counted from 1 -> its last verdict."""
        return dict(self.verdicts)

    @property
    def num_turns(self) -> int:
        return self.trajectory.num_turns

    @property
    def num_malformed(self) -> int:
        """Tool calls that could not be read."""
        return self.trajectory.num_malformed_calls


@dataclass(frozen=True)
class RolloutTimes:
    """Where the time of one run_rollouts went, seconds. Each span counts once, however many rollouts it served."""

    wall_s: float = 0.0
    generation_s: float = 0.0
    """In the engine."""
    evaluation_s: float = 0.0
    """While at least one environment executed calls or waited for a verdict."""
    overlap_s: float = 0.0
    """Both at once."""
    idle_s: float = 0.0
    """Of wall_s, neither: prompts, tokenising, other ranks."""


@dataclass
class RolloutHooks:
    """What a caller of run_rollouts wants to hear of; called from its thread."""

    finished: Callable[[Rollout], None] = lambda rollout: None
    """After each rollout, which is stored already."""
    timed: Callable[[RolloutTimes], None] = lambda times: None
    """At the end."""
    cancelled: Callable[[], bool] = lambda: False
    """Asked often; True ends every unfinished rollout as an infrastructure failure."""


Span = tuple[float, float]
"""Begin and end, time.monotonic()."""


def measure_times(begin: float, end: float, generation: Sequence[Span], environment: Sequence[Span]) -> RolloutTimes:
    """Times of a batch from the spans in which its parts worked."""
    generating, stepping = _union(generation), _union(environment)
    overlap = _length(generating) + _length(stepping) - _length(_union([*generating, *stepping]))
    busy = _length(_union([*generating, *stepping]))
    return RolloutTimes(
        wall_s=end - begin,
        generation_s=_length(generating),
        evaluation_s=_length(stepping),
        overlap_s=overlap,
        idle_s=max(0.0, end - begin - busy),
    )


def _union(spans: Sequence[Span]) -> list[Span]:
    """The same time without overlaps, in order."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _length(spans: Sequence[Span]) -> float:
    return sum(end - begin for begin, end in spans)
