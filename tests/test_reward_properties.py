"""What no reward may do, whatever the verdicts."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from tests.reward_records import FAILURES, compared, facts_of, failed, total_of, verdict_of
from training.reward_scores import noise_aware_speedup
from training.rewards import RewardConfig, reward_of, snap, turn_rewards

outcomes = st.sampled_from(FAILURES).map(failed)
failing_graphs = st.one_of(st.just(compared(None)), outcomes)
coverages = st.floats(0, 1)
speedups = st.floats(0.01, 20)
presets = st.sampled_from(["covered", "as"])
malformed = st.integers(0, 6)


@given(
    failing=st.lists(failing_graphs, min_size=1, max_size=4),
    coverage=st.floats(0.2, 1),
    preset=presets,
    clumsy=malformed,
    num_graphs=st.integers(1, 3),
)
def test_no_failing_pass_gets_more_than_a_correct_one(
    failing: list[GraphVerdict], coverage: float, preset: Any, clumsy: int, num_graphs: int
) -> None:
    """However well the failing one was written, and however badly the correct one."""
    config = RewardConfig(preset=preset)
    correct = total_of(*[compared(-5, 1.0, coverage)] * num_graphs, config=config, num_malformed=clumsy)
    assert correct > total_of(*failing, config=config)
    assert total_of(*failing, config=config) >= snap(config.lowest)


@given(speedup=speedups, low=coverages, high=coverages, first_t=st.sampled_from(range(-10, -4)), p=st.floats(0, 2))
def test_more_coverage_at_equal_speed_never_lowers_it(
    speedup: float, low: float, high: float, first_t: int, p: float
) -> None:
    low, high = sorted((low, high))
    config = RewardConfig(slowdown_exponent=p)
    assert total_of(compared(first_t, speedup, high), config=config) >= total_of(
        compared(first_t, speedup, low), config=config
    )


positive = st.floats(0.01, 100)


@given(speedup=positive, bounds=st.tuples(positive, positive))
def test_noise_aware_is_never_farther_from_one(speedup: float, bounds: tuple[float, float]) -> None:
    counted = noise_aware_speedup(speedup, bounds)
    assert abs(math.log(counted)) <= abs(math.log(speedup))
    assert (counted - 1) * (speedup - 1) >= 0  # and on no other side of it
    if min(bounds) <= 1 <= max(bounds):
        assert counted == 1


measured = st.builds(
    compared, st.sampled_from(range(-10, 2)), speedups, coverages, st.one_of(st.none(), st.tuples(positive, positive))
)
any_graph = st.one_of(measured, failing_graphs, st.just(failed(Outcome.VIOLATION)))
verdict_lists = st.lists(
    st.lists(any_graph, min_size=1, max_size=3).map(lambda graphs: verdict_of(*graphs)), max_size=5
)
configs = st.builds(
    RewardConfig,
    preset=st.sampled_from(["covered", "es_t", "as"]),
    form=st.sampled_from(["log", "linear"]),
    noise_aware=st.booleans(),
    counts=st.sampled_from(["best", "last"]),
    violations=st.sampled_from(["counted", "any"]),
    max_speedup=st.sampled_from([None, 3.0]),
    weights=st.sampled_from([{}, {"correct": 0.3, "coverage": 0.1, "format": 0.1, "length": 0.2}]),
    length_free_tokens=st.just(100),
    length_max_tokens=st.just(200),
)


@settings(max_examples=60)
@given(verdicts=verdict_lists, config=configs, clumsy=malformed, tokens=st.integers(0, 400))
def test_identical_attempts_have_identical_snapped_rewards(
    verdicts: list[Verdict], config: RewardConfig, clumsy: int, tokens: int
) -> None:
    facts = facts_of(*verdicts, num_malformed=clumsy, num_completion_tokens=tokens)
    again = facts_of(
        *(Verdict.model_validate_json(verdict.model_dump_json()) for verdict in verdicts),
        num_malformed=clumsy,
        num_completion_tokens=tokens,
    )
    reward = reward_of(facts, config)
    assert reward == reward_of(again, config)
    assert reward.total is not None and math.isfinite(reward.total)
    assert reward.total * 1024 == round(reward.total * 1024) and reward.total >= snap(config.lowest)


@settings(max_examples=60)
@given(verdicts=verdict_lists, config=configs, clumsy=malformed)
def test_turn_rewards_add_up_to_the_total(verdicts: list[Verdict], config: RewardConfig, clumsy: int) -> None:
    facts = facts_of(*verdicts, num_malformed=clumsy, num_turns=len(verdicts) + 1)
    gains, total = turn_rewards(facts, config), reward_of(facts, config).total
    assert gains is not None and total is not None and len(gains) == len(verdicts) + 1
    assert sum(gains) == total - snap(config.failing_score)  # exactly: multiples of 1/1024
    if config.counts == "best":
        assert all(gain >= 0 for gain in gains[:-1])
