"""Alarms: each is raised by a history that fails in its way, and an honest history raises none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from eval_harness.errors import UserError
from training.grpo_alarms import ENTROPY, RATIO, Alarm, AlarmConfig, Alarms

Figures = dict[str, float]


def honest(step: int, generator: random.Random, *, violation: float = 0.08, rollouts: int = 64) -> Figures:
    """A step as runs have them: noise in every figure, entropy that falls slowly, few failures of ours."""
    return {
        RATIO: 1.0 + generator.gauss(0, 0.03),
        ENTROPY: 0.6 * (1 - 0.5 * step / 100) + generator.gauss(0, 0.03),
        "rollouts/num": rollouts,
        "rollouts/num_violating": sum(generator.random() < violation for _ in range(rollouts)),
        "rollouts/num_infrastructure": sum(generator.random() < 0.01 for _ in range(rollouts)),
        "groups/dead_share": min(1.0, max(0.0, generator.gauss(0.5, 0.15))),
        "template/drift_share": 0.0,
        "loss": float("nan"),
    }


def run(change: Callable[[int, Figures], Figures], *, seed: int = 0, steps: int = 100, **config: object) -> list[Alarm]:
    generator = random.Random(seed)
    alarms = Alarms(AlarmConfig.model_validate(config))
    return [alarm for step in range(steps) for alarm in alarms.check(step, honest(step, generator) | change(step, {}))]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), violation=st.sampled_from([0.0, 0.02, 0.3, 0.9]))
def test_an_honest_history_is_quiet(seed: int, violation: float) -> None:
    generator = random.Random(seed)
    alarms = Alarms()
    raised = [a for step in range(100) for a in alarms.check(step, honest(step, generator, violation=violation))]
    assert raised == [] and alarms.active == []


BAD: dict[str, Callable[[int, Figures], Figures]] = {
    "importance_ratio": lambda step, _: {RATIO: 1.0 if step < 30 else 0.9 ** (step - 30)},
    "entropy_collapse": lambda step, _: {ENTROPY: 0.6 * 0.95**step},
    "violation_rate": lambda step, _: {"rollouts/num_violating": 4 if step < 30 else min(60, 4 + step - 30)},
    "infrastructure": lambda step, _: {"rollouts/num_infrastructure": 0 if step < 30 else 6},
    "template_drift": lambda step, _: {"template/drift_share": 0.25 if step == 30 else 0.0},
    "dead_groups": lambda step, _: {"groups/dead_share": 0.5 if step < 30 else 1.0},
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("seed", range(3))
def test_each_failure_raises_its_alarm_and_no_other(name: str, seed: int) -> None:
    raised = run(BAD[name], seed=seed)
    assert {alarm.name for alarm in raised} == {name}
    first = raised[0]
    assert 30 <= first.step <= 60 and not first.stops
    assert "\n" not in first.message and ": " in first.message
    # once, and then every twenty steps while it lasts
    assert all(later.step - earlier.step >= 20 for earlier, later in pairwise(raised))


def test_a_ratio_that_runs_away_upwards_too() -> None:
    raised = run(lambda step, _: {RATIO: 1.0 if step < 30 else 5.0})
    assert {alarm.name for alarm in raised} == {"importance_ratio"} and raised[0].threshold == 2.0


def test_a_rate_that_was_always_high_does_not_rise() -> None:
    assert run(lambda step, _: {"rollouts/num_violating": 30}) == []


def test_one_lost_rollout_is_an_accident() -> None:
    lost = {"rollouts/num": 4, "rollouts/num_violating": 0, "rollouts/num_infrastructure": 1}
    quiet = {"rollouts/num": 4, "rollouts/num_violating": 0, "rollouts/num_infrastructure": 0}
    assert run(lambda step, _: lost if step == 5 else quiet, steps=20) == []
    assert run(lambda step, _: lost, steps=20)
    alone = {"rollouts/num": 1, "rollouts/num_infrastructure": 1}
    assert Alarms().check(0, alone) == []


@pytest.mark.parametrize(("failed", "is_raised"), [(4, False), (12, True), (64, True)])
def test_a_bad_start_is_told_from_chance(failed: int, is_raised: bool) -> None:
    raised = Alarms().check(0, {"rollouts/num": 64, "rollouts/num_infrastructure": failed})
    assert [alarm.name for alarm in raised] == ["infrastructure"] * is_raised


def test_figures_that_are_missing_raise_nothing() -> None:
    alarms = Alarms()
    assert [alarm for step in range(50) for alarm in alarms.check(step, {RATIO: float("nan")})] == []


def test_a_resumed_run_goes_on_where_it_was() -> None:
    """State through JSON at step 45, between the first alarm and its repetition; steps done twice count once."""
    generator = random.Random(1)
    figures = [honest(step, generator) | BAD["importance_ratio"](step, {}) for step in range(90)]
    whole, before, after = Alarms(), Alarms(), Alarms()
    expected = [alarm for step, each in enumerate(figures) for alarm in whole.check(step, each)]
    found = [alarm for step in range(46) for alarm in before.check(step, figures[step])]
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    after.check(45, figures[45])
    found += [alarm for step in range(46, 90) for alarm in after.check(step, figures[step])]
    assert found == expected and len(expected) > 2
    assert after.state_dict() == whole.state_dict()
    with pytest.raises(UserError, match="version 0"):
        after.load_state_dict(whole.state_dict() | {"version": 0})


def test_what_stops_a_run_is_the_configurations_choice() -> None:
    assert all(alarm.stops for alarm in run(BAD["infrastructure"], stop_on=["infrastructure"]))
    with pytest.raises(ValidationError, match="stop_on"):
        AlarmConfig(stop_on=["entropy"])
