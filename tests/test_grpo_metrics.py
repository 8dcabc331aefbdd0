"""A step's figures: counted on each rank, added up over all of them."""

from __future__ import annotations

import json
import math

import pytest

from eval_harness.verdict import Outcome
from tests.reward_records import compared, facts_of, failed, verdict_of
from training.difficulty_pools import GroupResult
from training.grpo_metrics import GrpoMetrics, judge_seconds, merge_tallies
from training.rewards import RewardConfig, RolloutFacts, reward_of
from trajectories.record import StopReason

CONFIG = RewardConfig()
GOOD = verdict_of(compared(-10, 2.0, 0.5), timings={"total": 3.0, "waiting for the device": 1.0})
VARIANT = verdict_of(failed(Outcome.BATCH_VARIANT), timings={"total": 1.0})
CHEAT = verdict_of(failed(Outcome.VIOLATION), timings={"total": 0.5})
ATTEMPTS = [
    facts_of(CHEAT, GOOD, num_completion_tokens=100, num_malformed=1),
    facts_of(VARIANT, num_completion_tokens=300, stop_reason=StopReason.TURN_LIMIT),
    facts_of(num_turns=1, num_completion_tokens=50),
    facts_of(infrastructure_failure=True, stop_reason=StopReason.HARNESS_ERROR),
]


def metrics_of(attempts: list[RolloutFacts]) -> GrpoMetrics:
    metrics = GrpoMetrics()
    for facts in attempts:
        metrics.add_rollout(facts, reward_of(facts, CONFIG))
    return metrics


def test_a_step_by_hand() -> None:
    metrics = metrics_of(ATTEMPTS)
    metrics.add_group(GroupResult("a", 0, (1.0, 0.0)))
    metrics.add_group(GroupResult("b", 0, (0.0, 0.0)), is_resampled=True)
    metrics.add_seconds(rollout_s=10.0, generation_s=8.0, evaluation_s=4.0, overlap_s=3.0)
    metrics.add_seconds(training_s=2.0)
    metrics.add_template_check(False)
    metrics.add_template_check(True)
    figures = merge_tallies([metrics.tally()], num_judges=2)
    good = reward_of(ATTEMPTS[0], CONFIG)
    expected = {
        "rollouts/num": 4,
        "rollouts/num_infrastructure": 1,
        "rollouts/infrastructure_share": 0.25,
        "rollouts/unscored_share": 0.25,
        "rollouts/num_violating": 1,
        "rollouts/violation_rate": 0.25,
        "rollouts/batch_variant_rate": 0.25,
        "violations/source.import": 0.25,
        "stop/SUBMITTED": 0.5,
        "stop/HARNESS_ERROR": 0.25,
        "turns/mean": 5 / 4,
        "turns/max": 2,
        "turns/malformed_calls": 0.25,
        "tokens/mean": 450 / 4,
        "tokens/max": 300,
        "evaluations/mean": 0.75,
        "evaluations/unstable_share": 0.0,
        "rewards/total": (good.total or 0.0) / 3,
        "rewards/max": good.total,
        "rewards/floored_share": 1 / 3,
        "rewards/coverage": 0.5 / 3,
        "rewards/correct": 1 / 3,
        "rewards/format": 0.5 / 3,
        "score/as": (2.0 * 0.1 * 0.1) ** (1 / 3),
        "score/as_covered": (math.sqrt(0.2) * 0.1 * 0.1) ** (1 / 3),
        "score/evaluated_share": 2 / 3,
        "score/solved_share": 1 / 3,
        "outcomes/CORRECT": 0.5,
        "outcomes/BATCH_VARIANT": 0.5,
        "groups/num": 2,
        "groups/resampled": 1,
        "groups/dead_share": 0.5,
        "groups/spread": 0.25,
        "template/drift_share": 0.5,
        "seconds/rollout": 10.0,
        "seconds/training": 2.0,
        "seconds/judges": 3.5,
        "evaluator/overlap_share": 0.75,
        "evaluator/utilisation": 3.5 / 20,
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)


def test_ranks_add_up_to_one_and_work_at_the_same_time() -> None:
    ranks = [metrics_of(ATTEMPTS[:1]), metrics_of(ATTEMPTS[1:])]
    ranks[0].add_seconds(rollout_s=7.0)
    ranks[1].add_seconds(rollout_s=9.0)
    together = metrics_of(ATTEMPTS)
    together.add_seconds(rollout_s=9.0)
    gathered = json.loads(json.dumps([rank.tally() for rank in ranks]))
    assert merge_tallies(gathered, num_judges=1) == pytest.approx(merge_tallies([together.tally()], num_judges=1))


def test_nothing_is_said_of_nothing() -> None:
    figures = merge_tallies([GrpoMetrics().tally()])
    assert figures["rollouts/num"] == 0 and "rewards/total" not in figures and "score/as" not in figures
    lost = merge_tallies([metrics_of(ATTEMPTS[3:]).tally()])
    assert lost["rollouts/infrastructure_share"] == 1.0 and "rewards/total" not in lost
    assert all(math.isfinite(value) for value in (figures | lost).values())


def test_a_cached_verdict_cost_no_judge() -> None:
    assert judge_seconds(GOOD) == 2.0
    assert judge_seconds(GOOD.model_copy(update={"from_cache": True})) == 0.0
