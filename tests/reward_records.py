"""Verdicts for tests of rewards: graphs with chosen outcomes and measurements, scored as the harness scores them."""

from __future__ import annotations

from typing import Any

from eval_harness.scores import score_verdict
from eval_harness.verdict import STRICT_LEVEL, GraphVerdict, Outcome, Verdict, Violation
from training.rewards import RewardConfig, RolloutFacts, reward_of
from trajectories.record import StopReason

FAILURES = [
    outcome
    for outcome in Outcome
    if outcome not in (Outcome.CORRECT, Outcome.UNSTABLE, Outcome.VIOLATION, Outcome.BATCH_VARIANT)
]
"""Outcomes of an honest pass that fails."""


def failed(outcome: Outcome, **fields: Any) -> GraphVerdict:
    if outcome is Outcome.VIOLATION:
        fields["violations"] = [Violation(rule="source.import", layer="source", message="import os")]
    return GraphVerdict(graph=fields.pop("graph", "g"), graph_hash="0", outcome=outcome, **fields)


def compared(
    first_correct_t: int | None = -6,
    speedup: float | None = 1.0,
    coverage: float | None = 1.0,
    interval: tuple[float, float] | None = None,
) -> GraphVerdict:
    strict = first_correct_t is not None and first_correct_t <= STRICT_LEVEL
    return failed(
        Outcome.CORRECT if strict else Outcome.WRONG_VALUES,
        first_correct_t=first_correct_t,
        speedup=None if first_correct_t is None else speedup,
        speedup_interval=None if first_correct_t is None else interval,
        coverage=None if first_correct_t is None else coverage,
    )


def verdict_of(*graphs: GraphVerdict, candidate: str = "c0", **fields: Any) -> Verdict:
    complete = all(graph.outcome is not Outcome.UNSTABLE for graph in graphs)
    scores = score_verdict(graphs)
    known = {"protocol": "reward", "device": "cpu", "task_id": "t", "task_hash": "0"}
    known |= {"as_score": scores.as_score, "as_covered": scores.as_covered, "es": scores.es}
    return Verdict(**(known | {"candidate_hash": candidate, "complete": complete, "graphs": list(graphs)} | fields))


def facts_of(*verdicts: Verdict, **fields: Any) -> RolloutFacts:
    """An attempt with one evaluation a turn."""
    numbered = list(enumerate(verdicts, start=1))
    known: dict[str, Any] = {"num_turns": max(len(numbered), 1), "stop_reason": StopReason.SUBMITTED}
    return RolloutFacts(verdicts=numbered, **(known | fields))


def total_of(*graphs: GraphVerdict, config: RewardConfig | None = None, **fields: Any) -> float:
    """The total of an attempt with one verdict."""
    total = reward_of(facts_of(verdict_of(*graphs), **fields), config or RewardConfig()).total
    assert total is not None
    return total
