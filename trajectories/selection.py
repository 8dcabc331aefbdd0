"""select_trajectories: which trajectories a student learns from, cut where they should end, each refusal with a reason.

Presets: `paper` is PassNet's filter, AS > 0.1 on the best verdict that the policy was shown (it lets wrong and crashing
passes through). `strict`, the default, asks for a fresh strict verdict with every graph CORRECT at
t = -5, no violation, and a covered AS that is worth learning from. Then duplicates and quotas: selection_choice.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from eval_harness.errors import UserError
from eval_harness.summary import is_batch_variant
from eval_harness.verdict import Outcome, Verdict
from trajectories.ledger import teacher_of
from trajectories.record import Message, Trajectory
from trajectories.selection_choice import (
    TrajectoryDigest,
    choose,
    conversation_fingerprint,
    digest_trajectory,
)
from trajectories.selection_config import NearDuplicateConfig, SelectionConfig
from trajectories.store import is_finished

__all__ = [
    "NearDuplicateConfig",
    "SelectedTrajectory",
    "Selection",
    "SelectionConfig",
    "conversation_fingerprint",
    "cut_after_best",
    "refusal",
    "select_one",
    "select_trajectories",
    "take",
]

PAPER_MIN_AS = 0.1
"""PassNet's filter of teacher trajectories."""


@dataclass(frozen=True)
class SelectedTrajectory:
    """One trajectory to learn from."""

    trajectory: Trajectory
    """The whole record, for provenance."""
    messages: list[Message]
    """The conversation up to its best evaluation; the answer after it too if that ended the attempt."""
    cut_reason: str
    """Why it ends there."""
    as_score: float
    as_covered: float


@dataclass
class Selection:
    """The outcome of one selection."""

    kept: list[SelectedTrajectory] = field(default_factory=list)
    """By task, then the best first."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reason -> number of trajectories."""

    @property
    def num_considered(self) -> int:
        return len(self.kept) + self.refused.total()


def select_trajectories(trajectories: Iterable[Trajectory], config: SelectionConfig | None = None) -> Selection:
    """Keep or refuse each trajectory. The order of the input decides between equals."""
    config = config or SelectionConfig()
    trajectories = list(trajectories)
    choice = choose([take(trajectory, config) for trajectory in trajectories], config)
    kept = [select_one(trajectories[index], config) for index in choice.kept]
    return Selection(kept, choice.refused)


def take(trajectory: Trajectory, config: SelectionConfig) -> TrajectoryDigest:
    """The trajectory's own refusal, or what the choice between the good ones needs to know of it."""
    reason = refusal(trajectory, config)
    if reason is not None:
        return TrajectoryDigest(trajectory.task_id, teacher_of(trajectory.policy), reason)
    selected = select_one(trajectory, config)
    return digest_trajectory(trajectory, selected.messages, (selected.as_score, selected.as_covered), config)


def refusal(trajectory: Trajectory, config: SelectionConfig) -> str | None:
    """Why the trajectory is not kept; None if it is. The first reason that holds."""
    if not is_finished(trajectory):
        return f"not finished ({trajectory.stop_reason or 'interrupted'})"
    if not trajectory.is_conversation:
        return "a search, no conversation: dataset build --kind candidates"
    if not trajectory.evaluations:
        return "never evaluated a pass"
    if trajectory.best_evaluation is None:
        return "no evaluation has a score"
    shown = trajectory.evaluations[trajectory.best_evaluation].verdict
    for verdict in (shown, trajectory.final_verdict):
        if verdict is not None and verdict.disabled_layers:
            return f"evaluated with integrity layers switched off ({', '.join(verdict.disabled_layers)})"
    if not any(message.role == "assistant" for message in cut_after_best(trajectory)[0]):
        return "no answer of the policy up to its best evaluation"
    if config.preset == "paper":
        return None if PAPER_MIN_AS < (shown.as_score or 0.0) < math.inf else f"AS is not above {PAPER_MIN_AS}"
    return _strict_refusal(trajectory.final_verdict, shown, config)


def _is_repeated(final: Verdict, shown: Verdict) -> bool:
    """Whether both had the same seeds: the best of many noisy evaluations is a lucky one."""
    return bool(final.seeds) and final.seeds == shown.seeds


def _strict_refusal(final: Verdict | None, shown: Verdict, config: SelectionConfig) -> str | None:
    if final is None:
        return "no final verdict"
    if final.from_cache or _is_repeated(final, shown):
        return "final verdict is not a fresh evaluation"
    if final.protocol != "strict":
        return f"final verdict by protocol {final.protocol}, not strict"
    if final.all_violations:
        return "final verdict has violations"
    for graph in final.graphs:
        if graph.outcome is not Outcome.CORRECT:
            return f"final verdict has a graph that is {graph.outcome}"
    if config.batch_invariant and (reason := _batch_refusal(final)):
        return reason
    # a verdict on no graph is right about all of them, and no comparison holds for NaN
    if not final.graphs or not final.complete or final.as_covered is None or not math.isfinite(final.as_covered):
        return "final verdict has no score"
    if final.as_covered < config.min_as_covered:
        return f"covered AS below {config.min_as_covered:g}"
    return None


def _batch_refusal(final: Verdict) -> str | None:
    if any(graph.batch_invariance is None for graph in final.graphs):
        return "final verdict without a check of batch invariance"
    if any(is_batch_variant(graph) for graph in final.graphs):
        return "final verdict has a graph whose rows follow their batch"
    return None


def select_one(trajectory: Trajectory, config: SelectionConfig) -> SelectedTrajectory:
    """A good trajectory as a student should see it. Raises UserError for a record without a best evaluation."""
    messages, cut_reason = cut_after_best(trajectory)
    best = trajectory.best_evaluation
    assert best is not None
    verdict = trajectory.evaluations[best].verdict if config.preset == "paper" else trajectory.final_verdict
    assert verdict is not None
    return SelectedTrajectory(trajectory, messages, cut_reason, verdict.as_score or 0.0, verdict.as_covered or 0.0)


def cut_after_best(trajectory: Trajectory) -> tuple[list[Message], str]:
    """The messages to learn from, and why they end where they end. Raises UserError for a record without a best."""
    if trajectory.best_evaluation is None:
        raise UserError(f"{trajectory.trajectory_id}: no evaluation with a score; there is nothing to cut after")
    best_turn = trajectory.evaluations[trajectory.best_evaluation].turn
    kept = [message for message in trajectory.messages if message.turn is None or message.turn <= best_turn]
    rest = trajectory.messages[len(kept) :]
    if not rest:
        return kept, "the best evaluation is the last turn"
    if rest[0].role == "assistant" and not rest[0].tool_calls and len(rest) == 1:
        return [*kept, rest[0]], "the policy stopped after its best evaluation"
    num_turns = sum(message.role == "assistant" for message in rest)
    return kept, f"{num_turns} {'turn' if num_turns == 1 else 'turns'} after the best evaluation cut off"
