"""Statistics of the paired clock, on made-up times with known answers."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.judge import clock
from eval_harness.timing import (
    MAX_BLOCK_CALLS,
    PairTiming,
    block_calls,
    block_overhead_s,
    deferred_work_s,
    estimate_speedup,
    is_candidate_first,
    relative_iqr,
)


def clusters_with(speedup: float, *, noise: float = 0.0, num_clusters: int = 5, seed: int = 0):
    generator = random.Random(seed)
    return [
        [
            PairTiming(
                0.010 * math.exp(generator.gauss(0, noise)), 0.010 * speedup * math.exp(generator.gauss(0, noise)), 100
            )
            for _ in range(8)
        ]
        for _ in range(num_clusters)
    ]


def test_exact_times_give_the_exact_speedup():
    estimate = estimate_speedup(clusters_with(2.0), floor=0.0)
    assert estimate.speedup == pytest.approx(2.0)
    assert estimate.interval == pytest.approx((2.0, 2.0))
    assert estimate.latency_us == pytest.approx(100.0)
    assert estimate.reference_latency_us == pytest.approx(200.0)


def test_the_floor_widens_the_interval():
    estimate = estimate_speedup(clusters_with(1.0), floor=math.log(1.02))
    assert estimate.interval == pytest.approx((1 / 1.02, 1.02))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    covered = 0
    for seed in range(200):
        low, high = estimate_speedup(clusters_with(1.3, noise=0.05, seed=seed), floor=0.0).interval
        covered += low <= 1.3 <= high
    assert 178 <= covered <= 199


def test_one_disturbed_block_does_not_move_a_cluster():
    clusters = clusters_with(1.0)
    clusters[0][3] = PairTiming(1.0, 0.010)
    assert estimate_speedup(clusters, floor=0.0).speedup == pytest.approx(1.0)


def test_three_pairs_have_no_interval():
    with pytest.raises(ValueError, match="four pairs"):
        estimate_speedup([clusters_with(1.0)[0][:3]], floor=0.0)


@given(st.floats(1e-7, 1.0), st.floats(1e-7, 1.0), st.integers(1, 1000))
def test_blocks_stay_within_memory_and_the_slow_sides_bound(candidate_s, reference_s, max_sets):
    calls = block_calls(candidate_s, reference_s, block_ms=10.0, max_sets=max_sets)
    assert 1 <= calls <= min(max_sets, MAX_BLOCK_CALLS)
    assert calls == 1 or calls * max(candidate_s, reference_s) <= 0.121


def test_blocks_are_long_enough_for_the_fast_side():
    assert block_calls(100e-6, 200e-6, block_ms=10.0, max_sets=400) == 100


def test_order_is_abba():
    assert [is_candidate_first(i) for i in range(4)] == [True, False, True, False]


def test_late_work_is_booked_and_equal_deliveries_are_not():
    assert deferred_work_s([0.0051, 0.0049, 0.0050], [0.0010, 0.0011, 0.0009]) == pytest.approx(0.004)
    assert deferred_work_s([0.0011, 0.0012, 0.0010], [0.0010, 0.0011, 0.0009]) == 0.0


def test_relative_iqr():
    assert relative_iqr([1.0] * 20) == 0.0
    assert relative_iqr([1.0] * 10 + [2.0] * 10) == pytest.approx(2 / 3)


def test_blocks_of_different_lengths_give_one_latency():
    pairs = [PairTiming(0.001 * count, 0.002 * count, count) for count in (3, 7, 5, 10)]
    estimate = estimate_speedup([pairs], floor=0.0)
    assert estimate.speedup == pytest.approx(2.0)
    assert estimate.latency_us == pytest.approx(1000.0)


def test_the_order_within_a_pair_cancels():
    # whoever runs second is 3% faster
    pairs = [PairTiming(1.0, 0.97) if is_candidate_first(i) else PairTiming(0.97, 1.0) for i in range(20)]
    estimate = estimate_speedup([pairs], floor=0.0)
    assert estimate.speedup == pytest.approx(1.0)
    assert estimate.interval == pytest.approx((1.0, 1.0))


def test_one_value_in_ten_disturbed_moves_neither_the_speedup_nor_its_interval_far():
    clusters = clusters_with(1.2, noise=0.01, num_clusters=10)
    calm = estimate_speedup(clusters, floor=0.0)
    for cluster in clusters:
        cluster[0] = PairTiming(0.05, cluster[0].reference_s, 100)
    estimate = estimate_speedup(clusters, floor=0.0)
    assert estimate.speedup == pytest.approx(calm.speedup, rel=0.02)
    assert estimate.half_width < 6 * calm.half_width


@pytest.mark.parametrize(("memory", "expected"), [(None, 6 << 30), (8 << 30, 1 << 30), (141 << 30, 6 << 30)])
def test_a_small_gpu_has_a_small_ring(monkeypatch, memory, expected):
    """Two rings of 6 GiB do not fit on a GPU of 8 GiB."""
    monkeypatch.setattr(clock, "device_memory_bytes", lambda device: memory)
    assert clock.ring_bytes("cuda:0") == expected


def test_the_ring_of_a_cpu_does_not_ask_for_a_gpu():
    assert clock.ring_bytes("cpu") == clock.RING_BYTES["cpu"]


@given(
    empty_us=st.floats(10, 1000), start_us=st.floats(0, 200), call_us=st.floats(1, 1000), num_calls=st.integers(2, 500)
)
def test_what_the_first_call_costs_beyond_the_others_is_overhead(
    empty_us: float, start_us: float, call_us: float, num_calls: int
) -> None:
    single_us, block_us = empty_us + start_us + call_us, empty_us + start_us + num_calls * call_us
    found = block_overhead_s(empty_us, single_us, block_us, num_calls, max_start_s=200)
    assert found == pytest.approx(empty_us + start_us, rel=1e-6)
    # a warm single call cannot bring it below an empty block, nor anything above the bound
    assert block_overhead_s(empty_us, 0.0, block_us, num_calls, max_start_s=200) == empty_us
    assert block_overhead_s(empty_us, single_us + 1e6, block_us, num_calls, max_start_s=200) == empty_us + 200
    assert block_overhead_s(empty_us, single_us, block_us, 1, max_start_s=200) == empty_us
