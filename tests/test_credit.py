"""Turn-level credit: rewards to go, leave-one-out baselines, and one advantage a token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.verdict import Outcome
from tests.reward_records import compared, facts_of, failed, verdict_of
from training.credit import CreditConfig, leave_one_out, rewards_to_go, token_advantages, turn_advantages
from training.rewards import RewardConfig, turn_rewards

TURN = CreditConfig(mode="turn", scale="none")
rewards = st.integers(-1024, 2048).map(lambda number: number / 1024)
attempts = st.lists(rewards, min_size=1, max_size=6)


def test_rewards_to_go() -> None:
    assert rewards_to_go([1.0, 0.0, 0.5]) == [1.5, 0.5, 0.5]
    assert rewards_to_go([1.0, 0.0, 0.5], discount=0.5) == [1.125, 0.25, 0.5]
    assert rewards_to_go([]) == []


@given(values=st.lists(st.one_of(st.none(), rewards), max_size=8))
def test_leave_one_out_is_the_value_less_the_mean_of_the_others(values: list[float | None]) -> None:
    results = leave_one_out(values)
    for index, (value, result) in enumerate(zip(values, results, strict=True)):
        others = [other for at, other in enumerate(values) if at != index and other is not None]
        if value is None:
            assert result is None
        else:
            assert result == pytest.approx(value - sum(others) / len(others) if others else 0.0, abs=1e-12)
    assert sum(result for result in results if result is not None) == pytest.approx(0, abs=1e-12)


@given(group=st.lists(attempts, min_size=2, max_size=6), discount=st.sampled_from([1.0, 0.9]))
def test_a_turn_that_several_have_sums_to_zero_over_the_group(group: list[list[float]], discount: float) -> None:
    advantages = turn_advantages(group, CreditConfig(mode="turn", scale="none", discount=discount))
    assert [len(values) for values in advantages] == [len(values) for values in group]
    for turn in range(max(map(len, group))):
        at_turn = [values[turn] for values in advantages if turn < len(values)]
        if len(at_turn) > 1:
            assert sum(at_turn) == pytest.approx(0, abs=1e-9)
    scaled = turn_advantages(group, CreditConfig(mode="turn", discount=discount))
    flat = [value for values in scaled for value in values]
    if any(flat):
        assert sum(value * value for value in flat) / len(flat) == pytest.approx(1)


@given(attempt=attempts, size=st.integers(2, 6))
def test_identical_attempts_teach_nothing(attempt: list[float], size: int) -> None:
    assert turn_advantages([attempt] * size) == [[0.0] * len(attempt)] * size


@given(group=st.lists(attempts, min_size=2, max_size=5), at=st.integers(0, 5))
def test_a_lost_attempt_changes_nothing_for_the_others(group: list[list[float]], at: int) -> None:
    with_lost = [*group[:at], None, *group[at:]]
    advantages = turn_advantages(with_lost, TURN)
    assert advantages.pop(min(at, len(group))) == []
    assert advantages == turn_advantages(group, TURN)


def test_one_attempt_alone_has_no_signal() -> None:
    assert turn_advantages([[1.0, 2.0]]) == [[0.0, 0.0]]
    assert turn_advantages([None, [1.0, 2.0]]) == [[], [0.0, 0.0]]
    assert turn_advantages([None, None]) == [[], []]


def test_by_hand() -> None:
    # the first two differ at their first turn; the third goes on alone, against attempts that have ended
    advantages = turn_advantages([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0, 0.5]], TURN)
    assert advantages[0] == pytest.approx([0.75, -0.25])
    assert advantages[1] == pytest.approx([-0.75, -0.25])
    assert advantages[2] == pytest.approx([0.0, 0.5, 0.5])


def test_the_turn_that_gained_is_told_from_those_that_did_not() -> None:
    """Both attempts end at the same reward; the first one's second turn only wasted time, the other's made it good."""
    good, none = verdict_of(compared(-10, 1.0)), verdict_of(failed(Outcome.NO_MATCH))
    config = RewardConfig(weights={"format": 0.0})
    group = [turn_rewards(facts_of(*verdicts), config) for verdicts in ((good, none), (none, good))]
    assert turn_advantages(group, TURN) == [[0.0, -1.0], [0.0, 1.0]]


def test_tokens_have_the_advantage_of_their_turn() -> None:
    table = token_advantages([[1.0, -2.0], [], [0.5]], [[(0, 2), (4, 5)], [(0, 3)], [(1, 3)]], width=6)
    assert table.tolist() == [[1, 1, 0, 0, -2, 0], [0, 0, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0]]
    with pytest.raises(ValueError, match="attempt 0: 1 turns with an advantage, 2 with tokens"):
        token_advantages([[1.0]], [[(0, 1), (2, 3)]], width=4)
    with pytest.raises(ValueError, match="outside a completion of 4 tokens"):
        token_advantages([[1.0]], [[(0, 5)]], width=4)
