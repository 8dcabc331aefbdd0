"""The soak in small: mixed evaluations, none lost, outcomes as expected, one judge to the end."""

from __future__ import annotations

import random

import pytest

from scripts.benches.faults import FAULTS
from scripts.benches.soak import Sample, Soak, run_soak
from scripts.benches.soak_cases import draw_cases


@pytest.mark.slow
def test_a_short_soak_loses_nothing() -> None:
    soak = run_soak("cpu", 12, seed=1)
    assert len(soak.samples) == 12 and soak.num_lost == 0
    assert [sample.message for sample in soak.samples if not sample.is_expected] == []
    assert soak.num_judges == 1
    assert soak.left_over == []


def test_a_long_soak_draws_every_kind() -> None:
    names = [case.name for case in draw_cases("cpu", 300, random.Random(0))]
    assert len(names) == 300
    assert {fault.name for fault in FAULTS} <= set(names)
    assert names.count("honest") + names.count("honest-in-full") > 60


def test_growth_is_seen_and_noise_is_not() -> None:
    def soak(rss: list[int]) -> Soak:
        return Soak([Sample("honest", "CORRECT", True, 1.0, {"judge": kib}, 9, 1) for kib in rss])

    noise = random.Random(0)
    growing = soak([100_000 + 200 * index + noise.randrange(500) for index in range(100)])
    steady = soak([100_000 + noise.randrange(5000) for _ in range(100)])
    assert growing.slope_kib("judge") == pytest.approx(200, rel=0.1)
    assert abs(steady.slope_kib("judge") or 0) < 40
