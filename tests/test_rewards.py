"""Rewards by hand: golden numbers in each form, what counts, what is floored and what has no reward."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from eval_harness.errors import UserError
from eval_harness.presets import load_protocol
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from tests.reward_records import compared, facts_of, failed, total_of, verdict_of
from training.reward_scores import noise_aware_speedup
from training.rewards import (
    Reward,
    RewardConfig,
    RolloutFacts,
    check_reward_protocol,
    facts_of_trajectory,
    reward_of,
    snap,
    turn_rewards,
)
from trajectories.record import EvaluationRecord, StopReason, Trajectory, Usage

PLAIN = {"weights": {"format": 0.0}}
FOUR = [compared(-5, 1.5), compared(-5, 0.8), compared(None), failed(Outcome.RUNTIME_ERROR)]


@pytest.mark.parametrize(
    ("graphs", "p", "expected"),
    [
        ([failed(Outcome.NO_MATCH)], 0.0, 0.100000),
        ([failed(Outcome.RUNTIME_ERROR)], 0.0, 0.110706),
        ([failed(Outcome.COMPILE_ERROR)], 0.0, 0.125653),
        ([compared(None)], 0.0, 0.147207),
        ([compared(-10)], 0.0, 1.000000),
        ([compared(-5)], 0.0, 0.998069),
        ([compared(-4)], 0.0, 0.678114),
        ([compared(-3)], 0.0, 0.460729),
        ([compared(0)], 0.0, 0.179421),
        ([compared(-5, 2.0)], 0.0, 1.994978),
        ([compared(-5, 0.5)], 0.0, 0.499325),
        ([compared(-5, 0.5)], 0.5, 0.353179),
        (FOUR, 0.0, 0.373580),
    ],
)
def test_golden_numbers_of_as_in_each_form(graphs: list[GraphVerdict], p: float, expected: float) -> None:
    linear = reward_of(facts_of(verdict_of(*graphs)), RewardConfig(preset="as", slowdown_exponent=p))
    assert linear.parts["score"] == pytest.approx(expected, abs=5e-7)
    assert linear.total == snap(expected) and linear.total * 1024 == int(linear.total * 1024)
    # every graph is covered whole, so the covered score is the plain one; in log form 0 is a failure and 1 is eager
    log = reward_of(facts_of(verdict_of(*graphs)), RewardConfig(slowdown_exponent=p, **PLAIN))
    assert log.parts["score"] == pytest.approx(1 + math.log10(expected), abs=3e-6)


@pytest.mark.parametrize(("level", "expected"), [(-5, 0.330975), (1, 0.588566), (3, 1.046635)])
def test_golden_numbers_of_es_t_as_sole_reward(level: int, expected: float) -> None:
    config = RewardConfig(preset="es_t", tolerance_level=level)
    reward = reward_of(facts_of(verdict_of(*FOUR), num_malformed=3), config)
    assert reward.parts["score"] == pytest.approx(expected, abs=5e-7)
    assert reward.total == snap(expected)  # a malformed call changes nothing
    assert set(reward.parts) == {"score", "correct", "coverage", "format", "length"}  # all are logged


def test_a_covered_reward_by_hand() -> None:
    # b^(1-k) * s^k at every level from -5 on; the levels below weigh 0.005 of 5.957424
    graph = compared(-5, 2.0, 0.5)
    log_score = (math.log(0.1) * 0.005 + (0.5 * math.log(0.1) + 0.5 * math.log(2)) * 5.952424) / 5.957424
    reward = reward_of(facts_of(verdict_of(graph)), RewardConfig())
    assert reward.parts == pytest.approx(
        {"score": 1 + log_score / math.log(10), "correct": 1.0, "coverage": 0.5, "format": 1.0, "length": 0.0}
    )
    assert reward.total == snap(1 + log_score / math.log(10) + 0.02)


@pytest.mark.parametrize(
    ("speedup", "interval", "counted"),
    [
        (1.5, (1.2, 1.9), 1.2),
        (0.5, (0.4, 0.7), 0.7),
        (1.5, (0.9, 2.5), 1.0),
        (0.9, (0.8, 1.1), 1.0),
        (1.5, None, 1.5),
        (1.3, (1.4, 1.6), 1.3),  # a point outside its interval is nearer still
        (0.9, (1.1, 1.6), 1.0),
    ],
)
def test_noise_aware_by_hand(speedup: float, interval: tuple[float, float] | None, counted: float) -> None:
    assert noise_aware_speedup(speedup, interval) == counted
    reward = total_of(compared(-6, speedup, 1.0, interval), config=RewardConfig(preset="as", noise_aware=True))
    assert reward == total_of(compared(-6, counted), config=RewardConfig(preset="as"))


def test_untimed_graphs_follow_the_noise_aware_ones() -> None:
    timed, untimed = compared(-6, 1.4, 1.0, (0.9, 2.0)), compared(-6, None, 1.0)
    assert total_of(timed, untimed) == total_of(compared(-6, 1.0), compared(-6, 1.0))


def test_a_turn_has_what_it_gained() -> None:
    slow, wrong, fast = compared(-10, 0.5), compared(None), compared(-10, 2.0)
    facts = facts_of(verdict_of(slow), verdict_of(wrong), verdict_of(fast), num_turns=4)
    half, twice = snap(1 + math.log10(0.5)), snap(1 + math.log10(2.0))
    assert turn_rewards(facts, RewardConfig()) == [half, 0.0, twice - half, snap(1 + math.log10(2.0) + 0.02) - twice]
    last = turn_rewards(facts, RewardConfig(counts="last", **PLAIN))
    assert last is not None and last[1] < 0 and sum(last) == twice


@pytest.mark.parametrize("outcome", [Outcome.VIOLATION, Outcome.BATCH_VARIANT])
def test_broken_rules_and_batch_variance_go_to_the_floor(outcome: Outcome) -> None:
    # one variant graph of two, the other one fast: no part of it counts
    rest = [failed(outcome)] if outcome is Outcome.VIOLATION else [compared(-6, 900.0)]
    caught = verdict_of(failed(outcome), *rest)
    reward = reward_of(facts_of(caught), RewardConfig())
    assert (reward.total, reward.is_floored, reward.parts["format"], reward.parts["score"]) == (0.0, True, 0.0, 0.0)
    assert reward_of(facts_of(caught), RewardConfig(floor=-0.5)).total == -0.5
    # an honest verdict of the attempt counts before it, unless any violation is asked to count
    both = facts_of(caught, verdict_of(compared(-10, 1.0)))
    assert reward_of(both, RewardConfig(**PLAIN)).total == 1.0
    assert reward_of(both, RewardConfig(violations="any")).total == 0.0
    reversed_order = facts_of(verdict_of(compared(-10, 1.0)), caught)
    assert reward_of(reversed_order, RewardConfig(**PLAIN)).total == 1.0
    assert reward_of(reversed_order, RewardConfig(counts="last")).total == 0.0


def test_the_earliest_of_equals_counts_and_a_limit_on_speed() -> None:
    same = [verdict_of(compared(-10, 2.0), candidate=name) for name in ("a", "b")]
    assert reward_of(facts_of(*same), RewardConfig()).counted == 0
    assert reward_of(facts_of(*same), RewardConfig(counts="last")).counted == 1
    fast = facts_of(verdict_of(compared(-10, 50.0)))
    assert reward_of(fast, RewardConfig(preset="as", max_speedup=3.0)).total == 3.0
    sloppy = reward_of(facts_of(verdict_of(compared(-3, 1.0, 0.8), compared(-10, 1.0, 0.6))), RewardConfig())
    assert (sloppy.parts["correct"], sloppy.parts["coverage"]) == (0.5, 0.3)  # wrong values cover nothing


def test_our_failures_have_no_reward() -> None:
    unstable, fine = verdict_of(failed(Outcome.UNSTABLE)), verdict_of(compared(-10, 1.0))
    config = RewardConfig(**PLAIN)
    assert reward_of(facts_of(fine, infrastructure_failure=True), config) == Reward(total=None)
    assert reward_of(facts_of(fine, stop_reason=StopReason.HARNESS_ERROR), config).total is None
    assert reward_of(facts_of(unstable), config).total is None
    assert reward_of(facts_of(fine, verdict_of(failed(Outcome.UNSTABLE), candidate="c1")), config).total is None
    # the folder was judged at another time, or the student went on to another one
    assert reward_of(facts_of(fine, unstable), config).total == 1.0
    assert reward_of(facts_of(unstable, fine), config).total == 1.0
    assert reward_of(facts_of(fine, unstable), RewardConfig(counts="last")).total is None
    assert turn_rewards(facts_of(unstable), config) is None
    # a verdict without timing, or without the coverage that is asked for, cannot be scored: never 0
    untimed = Verdict.model_validate(
        fine.model_dump() | {"as_score": None, "as_covered": None, "graphs": [compared(-6, None)]}
    )
    assert reward_of(facts_of(untimed), config).total is None
    bare = verdict_of(compared(-10, 1.0, None))
    assert reward_of(facts_of(bare), config).total is None
    assert reward_of(facts_of(bare), RewardConfig(preset="as")).total == 1.0


def test_an_attempt_that_was_never_evaluated_is_a_failure_and_badly_formed() -> None:
    reward = reward_of(facts_of(num_turns=3), RewardConfig())
    assert (reward.total, reward.counted, reward.parts["format"]) == (0.0, None, 0.0)
    tried = reward_of(facts_of(verdict_of(failed(Outcome.NO_MATCH)), num_turns=2, num_malformed=1), RewardConfig())
    assert tried.total == snap(0.01) > 0  # something to learn from before anything works
    gave_up = facts_of(verdict_of(failed(Outcome.NO_MATCH)), stop_reason=StopReason.FORMAT_ERROR)
    assert reward_of(gave_up, RewardConfig()).total == 0.0


def test_the_length_part() -> None:
    config = RewardConfig(weights={"length": 0.5}, length_free_tokens=100, length_max_tokens=200)
    verdict = verdict_of(compared(-10, 1.0))
    for tokens, part in ((0, 0.0), (100, 0.0), (150, -0.5), (200, -1.0), (900, -1.0)):
        reward = reward_of(facts_of(verdict, num_completion_tokens=tokens), config)
        assert reward.parts["length"] == part and reward.total == snap(1.02 + 0.5 * part)


def test_what_a_configuration_may_not_say() -> None:
    assert RewardConfig(preset="es_t", form="log").form == "log"  # a preset only fills in
    for wrong, said in (
        ({"weights": {"length": 0.1}}, "length_free_tokens"),
        ({"length_free_tokens": 9, "length_max_tokens": 9}, "below"),
        ({"floor": 0.5}, "above what a failing pass gets"),
        ({"weights": {"score": 0.0}}, "nothing of the verdict"),
        ({"weights": {"speed": 1.0}}, "speed"),
        ({"preset": "best"}, "preset"),
        ({"snap": 1}, "snap"),
    ):
        with pytest.raises(ValidationError, match=said):
            RewardConfig.model_validate(wrong)
    resolved = RewardConfig(preset="as").model_dump()
    assert RewardConfig.model_validate(resolved) == RewardConfig(preset="as")


def test_protocols_that_no_reward_is_made_from() -> None:
    check_reward_protocol(load_protocol("reward"))
    check_reward_protocol(load_protocol("strict"))
    for name, fields in (("passnet", {}), ("reward", {"timing": False}), ("reward", {"disabled_layers": ["source"]})):
        with pytest.raises(UserError, match="protocol"):
            check_reward_protocol(load_protocol(name, **fields))


def test_the_facts_of_a_stored_attempt() -> None:
    verdict = verdict_of(compared(-6, 2.0))
    trajectory = Trajectory(
        trajectory_id="t__000",
        task_id="t",
        task_hash="0",
        graph_hashes={},
        attempt_index=0,
        policy={},
        protocol="reward",
        device="cpu",
        seed=0,
        tools=[],
        messages=[],
        evaluations=[EvaluationRecord(turn=2, verdict=verdict, files={})],
        stop_reason=StopReason.TURN_LIMIT,
        usage=Usage(output_tokens=77),
        num_turns=3,
        num_malformed_calls=1,
    )
    expected = RolloutFacts([(2, verdict)], 3, 1, 77, False, StopReason.TURN_LIMIT)
    assert facts_of_trajectory(trajectory) == expected
    lost = trajectory.model_copy(update={"stop_reason": StopReason.POLICY_ERROR})
    assert reward_of(facts_of_trajectory(lost, num_completion_tokens=5), RewardConfig()).total is None


def test_the_gap_that_the_format_part_must_not_bridge() -> None:
    """docs/rewards.md states both: the best failing pass, and a correct one that covers a fifth at eager's speed."""
    wrong = total_of(compared(None), config=RewardConfig(**PLAIN))
    fifth = total_of(compared(-5, 1.0, coverage=0.2), config=RewardConfig(**PLAIN))
    assert (wrong, fifth) == (pytest.approx(0.168, abs=1e-3), pytest.approx(0.200, abs=1e-3))
    assert fifth - wrong > RewardConfig().weights.format
