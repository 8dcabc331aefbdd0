"""Figures of a report against plain ways of counting: attempts, intervals, turns, groups, comparisons, the schema."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.passbench import load_tasks
from eval_harness.errors import UserError
from eval_harness.report import build_report
from eval_harness.report_facts import GraphFacts, ShownEvaluation, facts_of_graph
from eval_harness.report_groups import OVERHEAD, UNTIMED, WORK, Member, group_figures, launch_share
from eval_harness.report_markdown import render_markdown
from eval_harness.report_row import ReportRow, unsubmitted_verdict
from eval_harness.report_schema import Report, json_schema
from eval_harness.resampling import FIGURES, figure, interval, paired_change, task_sums
from eval_harness.scores import score_verdict
from eval_harness.several_attempts import expected_best, pass_at_k, summarize_attempts
from eval_harness.summary import summarize
from eval_harness.turn_figures import as_by_turn, best_so_far, pass_fail_pass, summarize_submissions, summarize_turns
from eval_harness.verdict import GraphVerdict, Outcome, Verdict, Violation


def make_graph(speedup: float | None, *, name: str = "g", coverage: float = 0.7, **fields: Any) -> GraphVerdict:
    """Correct with a speedup; None: a runtime error."""
    if speedup is None:
        return GraphVerdict(graph=name, graph_hash=f"hash {name}", outcome=Outcome.RUNTIME_ERROR, **fields)
    return GraphVerdict(
        graph=name, graph_hash=f"hash {name}", outcome=Outcome.CORRECT, first_correct_t=-6, speedup=speedup,
        coverage=coverage, **fields,
    )  # fmt: skip


def make_verdict(task_id: str, *graphs: GraphVerdict, **fields: Any) -> Verdict:
    scores = score_verdict(graphs)
    fields = {"task_hash": f"hash {task_id}", "protocol": "strict", "device": "cpu", "candidate_hash": "ab"} | fields
    return Verdict(
        task_id=task_id, complete=scores.as_score is not None, as_score=scores.as_score, as_covered=scores.as_covered,
        graphs=list(graphs), **fields,
    )  # fmt: skip


def shown(turn: int, score: float | None, *, correct: bool = True, rules: tuple[str, ...] = ()) -> ShownEvaluation:
    return ShownEvaluation(
        turn=turn, as_score=score, as_covered=score, num_correct=2 if correct else 1, num_graphs=2, rules=rules
    )


speedups = st.one_of(st.none(), st.floats(0.05, 20.0))
runs = st.lists(st.lists(speedups, min_size=1, max_size=5), min_size=1, max_size=6)


def run_of(values: list[list[float | None]]) -> list[Verdict]:
    return [
        make_verdict(f"t{index}", *(make_graph(value, name=f"g{place}") for place, value in enumerate(graphs)))
        for index, graphs in enumerate(values)
    ]


@given(runs)
@settings(max_examples=40, deadline=None)
def test_sums_over_tasks_give_the_pooled_figures(values: list[list[float | None]]) -> None:
    verdicts = run_of(values)
    summary = summarize(verdicts)
    sums = [task_sums(verdict) for verdict in verdicts]
    wanted = {
        "as_score": summary.as_score, "as_covered": summary.as_covered, "fast_1": summary.fast["1"],
        "sample_success": summary.sample_success, "subgraph_success": summary.subgraph_success,
        "g_mean": summary.g_mean,
    }  # fmt: skip
    for name, value in wanted.items():
        found = figure(name, [each for each in sums if each is not None])
        assert (found is None) == (value is None) and (value is None or found == pytest.approx(value)), name


def test_an_interval_is_that_of_plain_resampling() -> None:
    values: list[list[float | None]] = [[1.5, 0.9], [None], [2.0, 2.2, None], [1.0], [0.6, None], [1.3], [None, None]]
    verdicts = run_of(values)
    sums = [each for each in map(task_sums, verdicts) if each is not None]
    generator = np.random.default_rng(5)
    for name in ("as_score", "subgraph_success", "sample_success"):
        drawn = []
        for _ in range(4000):
            picked = [sums[index] for index in generator.integers(0, len(sums), len(sums))]
            drawn.append(figure(name, picked))
        low, high = np.quantile(np.array(drawn, dtype=float), [0.025, 0.975])
        found = interval(name, sums)
        assert found is not None and found == pytest.approx((low, high), rel=0.12)
        assert found == interval(name, sums), "the same each time"
    assert interval("as_score", sums[:1]) is None and figure("as_score", []) is None


def test_a_verdict_without_a_score_has_no_share() -> None:
    unstable = GraphVerdict(graph="g", graph_hash="h", outcome=Outcome.UNSTABLE)
    assert task_sums(make_verdict("t", unstable)) is None


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_with_a_solved_attempt(case: tuple[int, int, int]) -> None:
    num, solved, k = case
    draws = list(combinations([True] * solved + [False] * (num - solved), k))
    assert pass_at_k(num, solved, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


@pytest.mark.parametrize("case", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_refuses_what_cannot_be(case: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="needs 1 <= k"):
        pass_at_k(*case)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=7), st.data())
def test_the_expected_best_is_the_mean_over_draws(ranked: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(ranked)))
    draws = [min(draw) for draw in combinations(range(len(ranked)), k)]
    assert expected_best(ranked, k) == pytest.approx(sum(ranked[index] for index in draws) / len(draws), abs=1e-9)


def test_several_attempts_choose_by_what_was_shown_not_by_the_fresh_verdict() -> None:
    fresh = {"a": [make_verdict("a", make_graph(1.0)), make_verdict("a", make_graph(3.0))]}
    lucky = summarize_attempts(fresh, {"a": [5.0, 2.0]})
    assert lucky["best_of_k"]["2"] == pytest.approx(fresh["a"][0].as_score)
    assert summarize_attempts(fresh, {"a": [1.0, 2.0]})["best_of_k"]["2"] == pytest.approx(fresh["a"][1].as_score)
    assert lucky["best_of_k"]["1"] == pytest.approx(lucky["mean"]["as_score"]["value"])
    assert lucky["pass_at_k"] == {"1": 1.0, "2": 1.0}
    unstable = make_verdict("a", GraphVerdict(graph="g", graph_hash="h", outcome=Outcome.UNSTABLE))
    broken = summarize_attempts({"a": [fresh["a"][0], unstable]}, {})
    assert broken["incomplete_tasks"] == ["a"] and broken["pass_at_k"] == broken["mean"] == {}
    with pytest.raises(ValueError, match="same number"):
        summarize_attempts({"a": fresh["a"], "b": fresh["a"][:1]}, {})


def test_paired_changes_are_of_the_same_tasks() -> None:
    before = [each for each in map(task_sums, run_of([[1.0], [2.0], [None], [0.8]])) if each is not None]
    after = [each for each in map(task_sums, run_of([[1.1], [2.2], [None], [0.88]])) if each is not None]
    change = paired_change("g_mean", before, after)
    assert change is not None and change["is_ratio"] and change["change"] == pytest.approx(1.1)
    # every pair differs by the same factor, so the pairing leaves no spread, however the tasks differ
    assert change["interval"] == pytest.approx((1.1, 1.1))
    assert paired_change("as_score", before, before)["change"] == 1.0  # type: ignore[index]
    with pytest.raises(ValueError, match="same tasks"):
        paired_change("as_score", before, after[:2])


def test_turns_against_a_plain_count() -> None:
    attempts = {"a": [shown(2, 0.4), shown(3, 0.2, correct=False), shown(5, 0.8)], "b": [shown(4, None), shown(6, 1.2)]}
    curve = as_by_turn(attempts, {"a": 2, "b": 1, "c": 1}, 0.1)
    assert len(curve) == 6
    assert curve[0] == pytest.approx(0.1)
    assert curve[3] == pytest.approx(math.exp((2 * math.log(0.4) + 2 * math.log(0.1)) / 4))
    assert curve[5] == pytest.approx(math.exp((2 * math.log(0.8) + math.log(1.2) + math.log(0.1)) / 4))
    figures = summarize_turns(attempts)
    assert figures["first_share"] == pytest.approx((0.4 / 0.8 + 1.0) / 2)
    assert (figures["num_ending_well"], figures["pass_fail_pass"]) == (2, 0.5)
    assert summarize_turns({"c": []}) == {
        "num_tasks": 0, "first_share": None, "num_ending_well": 0, "pass_fail_pass": None, "num_evaluations": 0,
    }  # fmt: skip


@given(st.lists(st.booleans(), max_size=7))
def test_pass_fail_pass_is_a_pass_a_fail_and_a_pass_in_this_order(flags: list[bool]) -> None:
    plain = any(flags[i] and not flags[j] and flags[k] for i, j, k in combinations(range(len(flags)), 3))
    assert pass_fail_pass([shown(turn, 1.0, correct=flag) for turn, flag in enumerate(flags)]) == plain


def test_the_best_so_far_is_the_earliest_of_equals() -> None:
    assert best_so_far([shown(1, 0.5), shown(2, 0.5)], 9) == shown(1, 0.5) and best_so_far([shown(3, 1.0)], 2) is None


def test_submissions_with_a_violation_are_counted_each() -> None:
    attempts = [[shown(1, 0.1, rules=("a", "b")), shown(2, 1.0)], [], [shown(1, 0.1, rules=("a",))]]
    figures = summarize_submissions(attempts)
    assert figures["violating_submissions"] == pytest.approx(2 / 3) and figures["by_rule"] == {"a": 2, "b": 1}
    assert (figures["num_attempts"], figures["num_attempts_with_a_submission"]) == (3, 2)
    assert figures["violating_attempts"] == 1
    assert summarize_submissions([[]])["violating_submissions"] is None


def test_groups_divide_all_graphs_and_keep_overhead_apart() -> None:
    facts = {
        "hash g0": GraphFacts(domain="text", dtype="float32", num_elements=4096, num_operators=2),
        "hash g1": GraphFacts(domain="vision", dtype="bfloat16", num_elements=2**25, num_operators=40),
        "hash g2": GraphFacts(domain="text", dtype="float32", num_operators=3),
    }
    times = {"reference_latency_us": 20.0, "reference_num_kernels": 2.0}
    verdict = make_verdict(
        "t", make_graph(2.0, name="g0", **times), make_graph(0.5, name="g1", reference_latency_us=4000.0),
        make_graph(None, name="g2"), device="cuda:0",
    )  # fmt: skip
    unstable = make_verdict("u", GraphVerdict(graph="g", graph_hash="h", outcome=Outcome.UNSTABLE))
    groups = group_figures([verdict, unstable], facts)
    assert set(groups) == {"domain", "kind", "dtype", "size", "operators", "overhead"}
    for parts in groups.values():
        assert sum(part["num_graphs"] for part in parts) == 4 and parts[-1]["group"] == "not scored"
    named = {name: {part["group"]: part for part in parts} for name, parts in groups.items()}
    assert named["domain"]["text"]["subgraph_success"] == 0.5 and named["domain"]["text"]["g_mean"] == 2.0
    assert [part["group"] for part in groups["size"]] == [
        "up to 4,096 elements", "over 16,777,216 elements", "unknown", "not scored",
    ]  # fmt: skip
    assert set(named["overhead"]) == {OVERHEAD, WORK, UNTIMED, "not scored"}
    eager = {"t g2": make_graph(1.0, name="g2", reference_latency_us=9.0)}
    known = {part["group"]: part for part in group_figures([verdict], facts, reference=eager)["overhead"]}
    assert known[OVERHEAD]["num_graphs"] == 2, "the eager time of a failed graph is another row's"
    assert (
        launch_share(Member(make_graph(1.0, reference_latency_us=9.0), GraphFacts(num_operators=3), "cpu")) == OVERHEAD
    )
    assert group_figures([verdict], {}) == {}


def test_facts_of_a_graph_come_from_its_own_files() -> None:
    task = load_tasks("passbench_lite:eval")[0]
    facts = facts_of_graph(task.graphs[0], task)
    net = task.graphs[0].net
    assert (facts.domain, facts.kind, facts.num_operators) == (net["domain"], "fusible", net["num_operators"])
    assert facts.domain in ("text", "vision", "multimodal", "audio", "other") and facts.num_operators >= 2
    own = load_tasks("mini/llama_swiglu")[0]
    assert facts_of_graph(own.graphs[0], own).num_operators > 1


def a_row(name: str, *verdicts: Verdict, **fields: Any) -> ReportRow:
    return ReportRow(name=name, verdicts={verdict.task_id: verdict for verdict in verdicts}, **fields)


def test_other_settings_of_one_protocol_are_refused() -> None:
    verdict = make_verdict("a", make_graph(1.0))
    one = a_row("one", verdict, protocol_settings={"name": "strict", "num_draws": 4})
    two = a_row("two", verdict, protocol_settings={"name": "strict", "num_draws": 1})
    with pytest.raises(UserError, match=r"'one' and 'two' were evaluated with other settings .* num_draws \(4 and 1\)"):
        build_report([one, two])
    assert "num_draws" in build_report([one, two], allow_mixed=True)["warnings"][0]
    assert build_report([one, a_row("three", verdict)])["warnings"] == [], "an older row does not say its settings"


def test_another_processor_is_refused_and_another_torch_is_told() -> None:
    one = a_row("one", make_verdict("a", make_graph(1.0), machine={"cpu": "X"}, versions={"torch": "1"}))
    two = a_row("two", make_verdict("a", make_graph(1.0), machine={"cpu": "Y"}))
    with pytest.raises(UserError, match="different devices"):
        build_report([one, two])
    newer = a_row("two", make_verdict("a", make_graph(1.0), machine={"cpu": "X"}, versions={"torch": "2"}))
    assert build_report([one, newer])["warnings"] == ["verdicts of different versions of torch (1, 2)"]


def test_a_task_with_nothing_submitted_stands_beside_measured_ones() -> None:
    task = load_tasks("mini/llama_swiglu")[0]
    nothing = unsubmitted_verdict(task, protocol="strict", device="cuda:0")
    measured = make_verdict("b", make_graph(1.0), device="cuda:1", machine={"gpu": "H200"})
    assert build_report([a_row("one", nothing, measured)])["warnings"] == []
    with pytest.raises(UserError, match="different devices"):
        build_report([a_row("one", nothing, make_verdict("b", make_graph(1.0), machine={"cpu": "X"}))])


def a_report() -> dict[str, Any]:
    violation = Violation(rule="source.import", layer="source", message="import os")
    broken = GraphVerdict(
        graph="g1", graph_hash="hash g1", outcome=Outcome.VIOLATION, violations=[violation],
        batch_invariance={"outcome": "not applicable"},
    )  # fmt: skip
    good = make_graph(2.0, name="g0", batch_invariance={"outcome": "invariant"})
    fields: dict[str, Any] = {
        "shown": {"a": [[shown(1, 0.3), shown(2, 2.5)]], "b": [[]]},
        "graph_facts": {"hash g0": GraphFacts(domain="text|<b>", num_operators=2)},
        "feedback_scores": {"a": 2.5},
        "feedback_covered": {"a": 2.5},
        "totals": {"output_tokens": 10.0},
        "step": 5,
        "run": "runs/sft/x",
    }
    student = a_row("student", make_verdict("a", good), make_verdict("b", broken), **fields)
    eager = a_row("Eager", make_verdict("a", make_graph(1.0)), make_verdict("b", make_graph(1.0, name="g1")))
    return build_report([student, eager], compiled=[eager.model_copy(update={"name": "Eager, compiled"})])


def test_report_json_is_its_schema() -> None:
    report = a_report()
    assert Report.model_validate(report).model_dump(mode="json") == report
    row = report["rows"][0]
    assert row["figures"]["as_score"]["interval"][0] < row["figures"]["as_score"]["value"]
    assert (row["summary"]["batch_invariance_rate"], row["summary"]["num_batch_not_applicable"]) == (1.0, 1)
    assert row["fresh_over_feedback"] == pytest.approx((score_verdict([make_graph(2.0)]).as_score or 0) / 2.5)
    assert report["comparisons"][0]["changes"]["sample_success"]["change"] == 0.5
    assert report["curve"][0]["step"] == 5 and report["compiled"]["rows"][0]["name"] == "Eager, compiled"
    assert set(report["comparisons"][0]["changes"]) <= set(FIGURES)


def test_every_field_of_the_schema_is_explained() -> None:
    documented = json_schema()
    assert documented["title"] == "Report" and "pass_at_k" in documented["$defs"]["Attempts"]["properties"]
    assert all("description" in part for part in documented["$defs"].values())


def test_report_md_holds_the_tables_and_no_foreign_markup() -> None:
    text = render_markdown(a_report())
    for part in (
        "| student |",
        "PassNet, Table 1",
        "## Changes",
        "## Checkpoints",
        "## Through torch.compile",
        "0.108",
    ):
        assert part in text, part
    assert "<b>" not in text and "text\\|&lt;b&gt;" in text
    lines = [line for line in text.splitlines() if line.startswith("| row")]
    assert lines and all(line.count(" | ") == lines[0].count(" | ") for line in lines)
