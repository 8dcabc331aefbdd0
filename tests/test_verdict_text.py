"""Verdicts as text: what a person and what a model is told."""

from __future__ import annotations

from typing import Any

import pytest

from eval_harness.feedback import NEXT_STEPS, render_feedback
from eval_harness.scores import score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict, Violation
from eval_harness.verdict_text import render_verdict

IMPORT = Violation(rule="source.import", layer="source", file="Fuse.py", line=3, message="import os; remove it")


def graph_verdict(name: str, outcome: Outcome, **fields: Any) -> GraphVerdict:
    return GraphVerdict(graph=name, graph_hash="0", outcome=outcome, **fields)


def correct(name: str, speedup: float | None = 1.5, coverage: float = 0.9) -> GraphVerdict:
    return graph_verdict(
        name,
        Outcome.CORRECT,
        first_correct_t=-6,
        speedup=speedup,
        speedup_interval=None if speedup is None else (speedup - 0.1, speedup + 0.1),
        coverage=coverage,
        latency_us=12.25,
        reference_latency_us=20.5,
    )


def task_verdict(*graphs: GraphVerdict, **fields: Any) -> Verdict:
    scores = score_verdict(graphs)
    return Verdict(
        candidate_hash="ab" * 32,
        task_id="gelu",
        task_hash="0",
        protocol="strict",
        device="cpu",
        complete=scores.as_score is not None,
        as_score=scores.as_score,
        as_covered=scores.as_covered,
        es=scores.es,
        graphs=list(graphs),
        seeds={"draw": 987654321},
        **fields,
    )


def test_a_correct_verdict_shows_scores_and_a_line_a_graph() -> None:
    verdict = task_verdict(correct("graphs/a"), correct("graphs/b", 0.8))
    text = render_verdict(verdict)
    assert f"AS {verdict.as_score:.4f} (covered {verdict.as_covered:.4f}), 2 of 2 graphs CORRECT" in text
    row = next(line for line in text.splitlines() if line.startswith("graphs/a"))
    assert row.split() == ["graphs/a", "CORRECT", "-6", "1.500x", "1.400-1.600", "0.90", "20.5", "12.2"]
    assert "WARNING" not in text


def test_a_failure_says_stage_reason_and_place() -> None:
    verdict = task_verdict(
        correct("graphs/a"),
        graph_verdict("graphs/b", Outcome.NO_MATCH, message="no rule matched", match_report="Fuse: relu is not gelu"),
        graph_verdict("graphs/c", Outcome.WRONG_VALUES, message="output 0: 3 of 4 elements are beyond"),
        candidate_output="hello from the kernel",
    )
    text = render_verdict(verdict)
    assert "NO_MATCH (matching) in 1 of 3: graphs/b\n  no rule matched\n  Fuse: relu is not gelu" in text
    assert "WRONG_VALUES (correctness at t = -5) in 1 of 3: graphs/c\n  output 0: 3 of 4 elements" in text
    assert "  hello from the kernel" in text


def test_missing_confinement_is_said_loudly() -> None:
    text = render_verdict(task_verdict(correct("a"), confinement={"pid": "on", "network": "unshare: EPERM"}))
    assert "WARNING: CONFINEMENT IS INCOMPLETE\n  network: unshare: EPERM" in text
    assert "pid: on" not in text


def test_a_shared_gpu_is_said_loudly() -> None:
    machine = {"gpu_warnings": ["2 other processes use this GPU: stop them"]}
    text = render_verdict(task_verdict(correct("a"), machine=machine))
    assert "WARNING: THE GPU IS SHARED\n  2 other processes use this GPU: stop them" in text
    assert "SHARED" not in render_verdict(task_verdict(correct("a"), machine={"mps": False}))


def test_violations_name_rule_file_line_and_cure() -> None:
    verdict = task_verdict(graph_verdict("a", Outcome.VIOLATION, violations=[IMPORT]), violations=[IMPORT])
    for text in (render_verdict(verdict), render_feedback(verdict)):
        assert "[source.import] Fuse.py:3 import os; remove it" in text
    assert render_feedback(verdict).count("Fuse.py:3") == 1
    assert render_feedback(verdict).splitlines()[-1] == f"next: {NEXT_STEPS[Outcome.VIOLATION]}"


def test_an_unstable_verdict_says_that_there_is_no_score() -> None:
    verdict = task_verdict(correct("a"), graph_verdict("b", Outcome.UNSTABLE))
    assert "AS none (the measurement was unstable; evaluate again)" in render_verdict(verdict)
    assert "AS none" in render_feedback(verdict)


def test_control_characters_of_a_candidate_do_not_reach_the_terminal() -> None:
    failed = graph_verdict("a", Outcome.RUNTIME_ERROR, message="bad \x1b[2J thing")
    verdict = task_verdict(failed, candidate_output="\x1b]0;title\x07\rAS 99")
    for text in (render_verdict(verdict), render_feedback(verdict)):
        assert not {character for character in text if ord(character) < 32} - {"\n"}


def test_feedback_goes_through_the_stages_in_order() -> None:
    lines = render_feedback(task_verdict(correct("a", 1.5), correct("b", 2.0, 1.0))).splitlines()
    assert [line.split(":")[0].split()[0] for line in lines if not line.startswith("  ")] == [
        "AS",
        "matching",
        "correctness",
        "performance",
        "next",
    ]
    assert "matching: 2 of 2, coverage 0.90 to 1.00" in lines
    assert "performance: 1.50x to 2.00x of eager" in lines


@pytest.mark.parametrize(
    ("graphs", "words"),
    [
        ([correct("a", 1.5, 0.3)], "extend pattern()"),
        ([correct("a", 0.7)], "slower than eager"),
        ([correct("a", 1.5)], "stop here"),
        ([correct("a"), graph_verdict("b", Outcome.RUNTIME_ERROR)], NEXT_STEPS[Outcome.RUNTIME_ERROR]),
        # what comes first in the pipeline is mended first
        (
            [graph_verdict("a", Outcome.WRONG_VALUES), graph_verdict("b", Outcome.NO_MATCH)],
            NEXT_STEPS[Outcome.NO_MATCH],
        ),
        (
            [graph_verdict("a", Outcome.WRONG_VALUES, message="beyond the bfloat16 tolerance")],
            "round to bfloat16 after every operator",
        ),
    ],
)
def test_feedback_says_what_to_do_next(graphs: list[GraphVerdict], words: str) -> None:
    last = render_feedback(task_verdict(*graphs)).splitlines()[-1]
    assert last.startswith("next: ") and words in last


def test_every_outcome_has_a_next_step() -> None:
    assert set(NEXT_STEPS) == set(Outcome) - {Outcome.CORRECT}


def test_graphs_that_failed_alike_are_told_together() -> None:
    graphs = [graph_verdict(f"graphs/{index}", Outcome.NO_MATCH, message="no rule matched") for index in range(396)]
    text = render_feedback(task_verdict(*graphs))
    assert "NO_MATCH in 396 of 396: graphs/0, graphs/1, graphs/2, ..." in text
    assert text.count("no rule matched") == 1 and len(text) < 400


@pytest.mark.parametrize("max_chars", [4000, 600])
def test_feedback_is_never_too_long_and_keeps_its_first_and_last_line(max_chars: int) -> None:
    graphs = [
        graph_verdict(f"graphs/{index}" * 20, Outcome.RUNTIME_ERROR, message=f"{index} " + "line\n" * 3000)
        for index in range(20)
    ]
    text = render_feedback(task_verdict(*graphs, candidate_output="x" * 10_000), max_chars=max_chars)
    assert len(text) <= max_chars
    assert text.startswith("AS 0.1107") and text.splitlines()[-1] == f"next: {NEXT_STEPS[Outcome.RUNTIME_ERROR]}"


def test_feedback_holds_no_seeds_and_no_machine_facts() -> None:
    verdict = task_verdict(
        graph_verdict("a", Outcome.WRONG_VALUES, message="wrong"),
        machine={"processor": "Secret 9000"},
        versions={"torch": "2.13.0"},
        confinement={"network": "unshare: EPERM"},
    )
    text = render_feedback(verdict)
    assert not [word for word in ("987654321", "Secret", "2.13.0", "EPERM", "abab") if word in text]
