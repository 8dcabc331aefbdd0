"""Scores: the golden table of ES_t and AS, the factored form, and what covered scores promise."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.errors import HarnessError
from eval_harness.scores import (
    ERROR_CLASSES,
    TOLERANCE_WEIGHTS,
    as_score,
    es_t,
    factored_es_t,
    score_verdict,
)
from eval_harness.summary import summarize
from eval_harness.verdict import STRICT_LEVEL, TOLERANCE_LEVELS, GraphVerdict, Outcome, Verdict, Violation

FAILURES = [outcome for outcome in Outcome if outcome not in (Outcome.CORRECT, Outcome.UNSTABLE)]


def graph_verdict(outcome: Outcome, **fields: Any) -> GraphVerdict:
    if outcome is Outcome.VIOLATION:
        fields["violations"] = [Violation(rule="source.import", layer="source", message="import os")]
    return GraphVerdict(graph=fields.pop("graph", "g"), graph_hash="0", outcome=outcome, **fields)


def compared(first_correct_t: int | None, speedup: float | None = None, coverage: float | None = None) -> GraphVerdict:
    strict = first_correct_t is not None and first_correct_t <= STRICT_LEVEL
    return graph_verdict(
        Outcome.CORRECT if strict else Outcome.WRONG_VALUES,
        first_correct_t=first_correct_t,
        speedup=speedup,
        coverage=coverage,
    )


def task_verdict(task_id: str, graphs: list[GraphVerdict], **fields: Any) -> Verdict:
    complete = all(graph.outcome is not Outcome.UNSTABLE for graph in graphs)
    fields = {"protocol": "strict", "device": "cpu", "complete": complete, "task_hash": "0"} | fields
    return Verdict(candidate_hash="0", task_id=task_id, graphs=graphs, **fields)


FOUR = [compared(-5, 1.5), compared(-5, 0.8), compared(None), graph_verdict(Outcome.RUNTIME_ERROR)]


def test_weights_sum_to_the_papers_total() -> None:
    assert sum(TOLERANCE_WEIGHTS.values()) == pytest.approx(5.957424, abs=1e-9)
    assert list(TOLERANCE_WEIGHTS) == list(range(-10, 5))


@pytest.mark.parametrize(
    ("graphs", "p", "expected"),
    [
        ([graph_verdict(Outcome.NO_MATCH)], 0.0, 0.100000),
        ([graph_verdict(Outcome.VIOLATION)], 0.0, 0.100000),
        ([graph_verdict(Outcome.BATCH_VARIANT)], 0.0, 0.100000),
        ([graph_verdict(Outcome.RUNTIME_ERROR)], 0.0, 0.110706),
        ([graph_verdict(Outcome.TIMEOUT)], 0.0, 0.110706),
        ([graph_verdict(Outcome.COMPILE_ERROR)], 0.0, 0.125653),
        ([compared(None)], 0.0, 0.147207),
        ([graph_verdict(Outcome.WRONG_SHAPE)], 0.0, 0.147207),
        ([compared(-10, 1.0)], 0.0, 1.000000),
        ([compared(-5, 1.0)], 0.0, 0.998069),
        ([compared(-4, 1.0)], 0.0, 0.678114),
        ([compared(-3, 1.0)], 0.0, 0.460729),
        ([compared(0, 1.0)], 0.0, 0.179421),
        ([compared(-5, 2.0)], 0.0, 1.994978),
        ([compared(-5, 0.5)], 0.0, 0.499325),
        ([compared(-5, 0.5)], 0.5, 0.353179),
        (FOUR, 0.0, 0.373580),
    ],
)
def test_golden_table(graphs: list[GraphVerdict], p: float, expected: float) -> None:
    assert as_score(graphs, p=p) == pytest.approx(expected, abs=5e-7)
    assert score_verdict(graphs, p=p).as_score == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("level", "expected"), [(-5, 0.330975), (1, 0.588566), (3, 1.046635)])
def test_golden_es_of_four_graphs(level: int, expected: float) -> None:
    assert es_t(FOUR, level) == pytest.approx(expected, abs=5e-7)
    assert score_verdict(FOUR).es[str(level)] == pytest.approx(expected, abs=5e-7)


def test_correctness_at_two_and_above_is_that_at_one() -> None:
    # a value first within tolerance at t = 3 is wrong at 1, so it is forgiven like any wrong value, not timed
    assert es_t([compared(3, 0.5)], 3) == 1.0
    assert es_t([compared(1, 0.5)], 4) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("scoring", "outcome", "forgiven_from"),
    [
        ("paper", Outcome.VIOLATION, 3),
        ("paper", Outcome.NO_MATCH, 3),
        ("paper", Outcome.COMPILE_ERROR, 2),
        ("public", Outcome.RUNTIME_ERROR, 2),
        ("public", Outcome.COMPILE_ERROR, 3),
        ("public", Outcome.NO_MATCH, None),
        ("public", Outcome.TIMEOUT, None),
        ("passwright", Outcome.NO_MATCH, None),
        ("passwright", Outcome.COMPILE_ERROR, 2),
        ("passwright", Outcome.INPUT_MUTATED, 1),
    ],
)
def test_error_classes_of_each_scoring(scoring: Any, outcome: Outcome, forgiven_from: int | None) -> None:
    graphs = [graph_verdict(outcome)]
    forgiven = [level for level in TOLERANCE_LEVELS if es_t(graphs, level, scoring=scoring) == 1.0]
    assert forgiven == ([] if forgiven_from is None else list(range(forgiven_from, 5)))


def test_every_outcome_but_unstable_has_a_class_in_every_scoring() -> None:
    for classes in ERROR_CLASSES.values():
        assert set(classes) == set(Outcome) - {Outcome.UNSTABLE}


speedups = st.floats(0.02, 50)
coverages = st.floats(0, 1)
graph_verdicts = st.one_of(
    st.builds(compared, st.sampled_from(range(-10, 2)), speedups, coverages),
    st.just(compared(None)),
    st.sampled_from(FAILURES).map(graph_verdict),
)


@given(
    graphs=st.lists(graph_verdicts, min_size=1, max_size=12),
    level=st.sampled_from(TOLERANCE_LEVELS),
    scoring=st.sampled_from(["passwright", "paper", "public"]),
    p=st.floats(0, 2),
)
def test_factored_form_agrees(graphs: list[GraphVerdict], level: int, scoring: Any, p: float) -> None:
    direct = es_t(graphs, level, scoring=scoring, p=p)
    assert factored_es_t(graphs, level, scoring=scoring, p=p).es == pytest.approx(direct, rel=1e-9)


def test_factors_of_four_graphs() -> None:
    factors = factored_es_t(FOUR, 1, p=0.5)
    assert (factors.correct_rate, factors.slowed_rate) == (0.5, 0.5)
    assert factors.alpha == pytest.approx(math.sqrt(1.5 * 0.8))
    assert factors.beta == pytest.approx(0.8)
    assert factors.gamma == pytest.approx(0.1**0.5)  # one of two failures, the runtime error, is not forgiven at 1


@given(
    failing=st.one_of(st.just(compared(None)), st.sampled_from(FAILURES).map(graph_verdict)),
    coverage=st.floats(0.2, 1),
    p=st.floats(0, 2),
)
def test_no_failing_pass_beats_a_correct_one(failing: GraphVerdict, coverage: float, p: float) -> None:
    correct = compared(-5, 1.0, coverage)
    assert as_score([correct], p=p, covered=True) > as_score([failing], p=p, covered=True)


@given(speedup=st.floats(0.001, 50), low=coverages, high=coverages, p=st.floats(0, 2))
def test_more_coverage_at_equal_speed_never_lowers_the_score(speedup: float, low: float, high: float, p: float) -> None:
    low, high = sorted((low, high))
    scores = [as_score([compared(-5, speedup, k)], p=p, covered=True) for k in (low, high)]
    assert scores[1] >= scores[0] * (1 - 1e-12)


@given(speedup=st.floats(0.1, 20), factor=st.floats(0.05, 1), coverage=coverages, p=st.floats(0, 2))
def test_replacing_a_vendor_primitive_by_something_slower_never_raises_it(
    speedup: float, factor: float, coverage: float, p: float
) -> None:
    # vendor primitives are outside coverage, so replacing one leaves k as it was and only the speed falls
    before, after = compared(-5, speedup, coverage), compared(-5, speedup * factor, coverage)
    assert as_score([after], p=p, covered=True) <= as_score([before], p=p, covered=True) * (1 + 1e-12)


@given(share=st.floats(0, 0.25))
def test_replacing_one_cheap_operator_stays_below_a_fifth(share: float) -> None:
    # even if it now takes no time at all: by Amdahl the whole is then 1 / (1 - share) times as fast
    assert as_score([compared(-5, 1 / (1 - share), share)], covered=True) < 0.2
    assert as_score([compared(-5, 1 / (1 - share), share)]) > 0.99  # the trap that covering closes


@settings(max_examples=30)
@given(speedup=speedups)
def test_full_coverage_is_the_plain_score_down_to_b(speedup: float) -> None:
    graphs = [compared(-5, speedup, 1.0)]
    assert as_score(graphs, covered=True) == pytest.approx(as_score([compared(-5, max(speedup, 0.1))]), rel=1e-12)


def test_unstable_has_no_score() -> None:
    graphs = [compared(-6, 1.0, 1.0), graph_verdict(Outcome.UNSTABLE)]
    scores = score_verdict(graphs)
    assert (scores.as_score, scores.as_covered, scores.es) == (None, None, {})
    with pytest.raises(ValueError, match="UNSTABLE"):
        es_t(graphs, -5)


def test_no_covered_score_without_coverage() -> None:
    scores = score_verdict([compared(-6, 1.5, None)])
    assert scores.as_score is not None and scores.as_covered is None
    assert score_verdict([graph_verdict(Outcome.COMPILE_ERROR)]).as_covered is not None


def test_untimed_graphs_count_with_the_mean_of_the_timed_ones() -> None:
    timed = [compared(-6, 2.0, 1.0), compared(-6, 0.5, 1.0)]
    assert as_score([*timed, compared(-6, None, 1.0)]) == pytest.approx(as_score([*timed, compared(-6, 1.0, 1.0)]))
    with pytest.raises(HarnessError, match="no graph of its task was timed"):
        as_score([compared(-6, None, 1.0)])


def test_first_correct_t_of_a_crashed_graph_earns_nothing() -> None:
    crashed = graph_verdict(Outcome.RUNTIME_ERROR, first_correct_t=-10, speedup=3.0)
    assert as_score([crashed]) == pytest.approx(0.110706, abs=5e-7)


@pytest.mark.parametrize("speedup", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_speedup_is_our_failure(speedup: float) -> None:
    with pytest.raises(HarnessError, match="not a positive number"):
        as_score([compared(-6, speedup)])


def test_summary_pools_graphs_and_counts_tasks() -> None:
    fast = graph_verdict(Outcome.CORRECT, first_correct_t=-6, speedup=1.6, speedup_interval=(1.4, 1.8), coverage=0.5)
    slow = graph_verdict(Outcome.CORRECT, first_correct_t=-6, speedup=0.8, speedup_interval=(0.7, 0.9), coverage=1.0)
    forbidden = graph_verdict(Outcome.VIOLATION)
    verdicts = [task_verdict("a", [fast, slow]), task_verdict("b", [forbidden, forbidden])]
    summary = summarize(verdicts)
    assert summary.fast == {"1": 0.25, "1.2": 0.25, "1.5": 0.25, "2": 0.0}
    assert summary.fast_by_interval == {"1": 0.25, "1.2": 0.25, "1.5": 0.0, "2": 0.0}
    assert (summary.sample_success, summary.subgraph_success) == (0.5, 0.5)
    assert summary.g_mean == pytest.approx(math.sqrt(1.6 * 0.8))
    assert summary.mean_coverage == 0.75
    assert summary.as_score == pytest.approx(as_score([fast, slow, forbidden, forbidden]))
    assert summary.outcomes == {"CORRECT": 2, "VIOLATION": 2}
    assert summary.violations_by_rule == {"source.import": 1} and summary.num_violating_tasks == 1


def test_summary_fills_untimed_graphs_from_their_own_task() -> None:
    verdicts = [
        task_verdict("a", [compared(-6, 4.0, 1.0), compared(-6, None, 1.0)]),
        task_verdict("b", [compared(-6, 0.5, 1.0)]),
    ]
    expected = as_score([compared(-6, 4.0), compared(-6, 4.0), compared(-6, 0.5)])
    assert summarize(verdicts).as_score == pytest.approx(expected)


def test_summary_of_an_incomplete_run_has_no_score() -> None:
    verdicts = [task_verdict("a", [compared(-6, 4.0, 1.0)]), task_verdict("b", [graph_verdict(Outcome.UNSTABLE)])]
    summary = summarize(verdicts)
    assert summary.as_score is None and summary.incomplete_tasks == ["b"] and summary.num_graphs == 2
    with pytest.raises(ValueError, match="two verdicts of task a"):
        summarize([verdicts[0], verdicts[0]])
