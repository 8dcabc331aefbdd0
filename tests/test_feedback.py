"""Feedback for the model: the right stage, one entry a cause, the worst first, and nothing of the machine."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.executor import LocalExecutor
from eval_harness.feedback import NEXT_STEPS, render_feedback, without_machine
from eval_harness.presets import load_protocol
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from tests.helpers import (
    ADD_RELU_MUL_KERNEL,
    ADD_RELU_MUL_WRAPPER,
    SHORT_CLOCK,
    add_relu_mul,
    add_relu_mul_pass,
    make_task,
)
from tests.test_verdict_text import correct, graph_verdict, task_verdict

REPORT = "\n".join(
    [f"Rule{i}: no match; nearest: {i} of 9 nodes agree, then node tmp_{i}: eps is 1e-05" for i in range(6)]
)


def lines_of(verdict: Verdict, **options: Any) -> list[str]:
    return render_feedback(verdict, **options).splitlines()


def test_failures_stand_below_their_stage() -> None:
    graphs = [
        correct("a"),
        graph_verdict("b", Outcome.NO_MATCH, message="no rule matched"),
        graph_verdict("c", Outcome.WRONG_VALUES, message="values: 3 of 4 elements"),
    ]
    lines = lines_of(task_verdict(*graphs))
    order = ["AS ", "matching: 2 of 3", "NO_MATCH in 1 of 3: b", "correctness: 1 of 3", "WRONG_VALUES in 1 of 3: c"]
    positions = [next(i for i, line in enumerate(lines) if line.startswith(words)) for words in order]
    assert positions == sorted(positions)
    assert any(line.startswith("performance: 1.50x of eager, 1 of 3 timed") for line in lines)
    assert lines[-1] == f"next: {NEXT_STEPS[Outcome.NO_MATCH]}"


def test_one_cause_with_other_numbers_is_one_entry() -> None:
    graphs = [
        graph_verdict(f"g{i}", Outcome.WRONG_SHAPE, message=f"output 0: shape ({i}, 4), expected ({i}, {2 * i})")
        for i in range(1, 397)
    ]
    text = render_feedback(task_verdict(*graphs))
    assert "WRONG_SHAPE in 396 of 396: g1, g2, g3, ..." in text and text.count("expected (") == 1
    assert "more kinds of failure" not in text and len(text) < 500


def test_of_many_rules_the_nearest_come_first() -> None:
    text = render_feedback(task_verdict(graph_verdict("a", Outcome.NO_MATCH, message=REPORT, match_report=REPORT)))
    assert re.findall(r"Rule(\d)", text) == ["5", "4", "3"] and "and 3 more rules" in text


def test_of_many_graphs_the_worst_the_median_and_the_best_are_timed() -> None:
    graphs = [correct(f"g{i}", 0.5 + i / 10) for i in range(11)]
    lines = [line.strip() for line in lines_of(task_verdict(*graphs)) if "us against" in line]
    assert [line.split(" (")[0] for line in lines] == [
        "g0: 0.50x",
        "g1: 0.60x",
        "median, g5: 1.00x",
        "fastest, g10: 1.50x",
    ]
    assert lines[0] == "g0: 0.50x (0.40-0.60), 12.2 us against 20.5 us, coverage 0.90"


def test_kernels_and_gpu_time_are_told_where_they_were_measured() -> None:
    slow = correct("a", 0.8, 1.0).model_copy(
        update={"num_kernels": 3.0, "reference_num_kernels": 4.0, "gpu_speedup": 1.25}
    )
    text = render_feedback(task_verdict(slow))
    assert "GPU time alone 1.25x, kernels 3 against 4, coverage 1.00" in text
    assert text.endswith("next: slower than eager: launch one kernel instead of 3, without copies and fills")
    assert "kernels" not in render_feedback(task_verdict(correct("a", 1.2)))


def test_what_is_left_to_eager_is_named_where_it_is_much() -> None:
    report = "Fuse: matched tmp_0\nleft to eager: tmp_1 = softmax(tmp_0, -1)"
    part, most = (correct("a", 1.1, coverage).model_copy(update={"match_report": report}) for coverage in (0.3, 0.9))
    assert "  a: left to eager: tmp_1 = softmax(tmp_0, -1)" in lines_of(task_verdict(part))
    assert "left to eager" not in render_feedback(task_verdict(most))


def test_labels_replace_the_names_of_graphs() -> None:
    verdict = task_verdict(correct("graphs/0123abcd"), graph_verdict("graphs/ff", Outcome.TIMEOUT))
    text = render_feedback(verdict, labels={"graphs/0123abcd": "graphs/0", "graphs/ff": "graphs/1"})
    assert "TIMEOUT in 1 of 2: graphs/1" in text and "0123abcd" not in text
    assert verdict.graphs[0].graph == "graphs/0123abcd"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/tmp/pass_a1b2/pass_dir/Fuse.py:3: x", "pass_dir/Fuse.py:3: x"),
        ('File "/home/me/.venv/lib/python3.11/site-packages/triton/x.py", line 3', 'File ".../x.py", line 3'),
        ("<function f at 0x7f3a12bc>", "<function f at 0x...>"),
        ("a/b/c and x // y and 1/2", "a/b/c and x // y and 1/2"),
        ("pass_dir/kernel.py:3", "pass_dir/kernel.py:3"),
        ("mask 0x7f", "mask 0x7f"),
    ],
)
def test_paths_and_addresses_of_the_machine_are_left_out(said: str, told: str) -> None:
    assert without_machine(said) == told
    assert told in render_feedback(task_verdict(graph_verdict("a", Outcome.RUNTIME_ERROR, message=said)))


MESSAGES = st.text(max_size=300) | st.integers(0, 9000).map(lambda n: "line /a/b/c\n" * n)
FAILURES = st.sampled_from([item for item in Outcome if item not in (Outcome.CORRECT, Outcome.VIOLATION)])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(FAILURES, MESSAGES, MESSAGES), min_size=1, max_size=8), MESSAGES, st.sampled_from([300, 4000])
)
def test_whatever_failed_the_text_is_short_printable_and_keeps_its_ends(
    failures: list[tuple[Outcome, str, str]], printed: str, max_chars: int
) -> None:
    graphs = [
        graph_verdict(f"graphs/{index}", outcome, message=message, match_report=report)
        for index, (outcome, message, report) in enumerate(failures)
    ]
    text = render_feedback(task_verdict(*graphs, candidate_output=printed), max_chars=max_chars)
    assert len(text) <= max_chars and text.startswith("AS ") and f"0 of {len(graphs)} graphs CORRECT" in text
    assert text.splitlines()[-1].startswith("next: ")
    assert all(character.isprintable() or character in "\n\t" for character in text)


TAIL_FORGOTTEN = {
    "kernel": ADD_RELU_MUL_KERNEL.replace("in range(a.shape[1])", "in range(a.shape[1] - 2)"),
    "wrapper": ADD_RELU_MUL_WRAPPER.replace("empty_like", "zeros_like"),
}
IN_A_HELPER = """

@torch.fx.wrap
def fused(x, bias, scale):
    return helper(x, bias)


def helper(x, bias):
    return x.shape[7]
"""
TRANSPOSED = ADD_RELU_MUL_WRAPPER.replace("torch.empty_like(x)", "torch.empty(x.shape[1], x.shape[0])")


@pytest.mark.parametrize(
    ("parts", "outcome", "words"),
    [
        (TAIL_FORGOTTEN, Outcome.WRONG_VALUES, ["all of them in [:, 254:]", "worst at (", "expected", "off by"]),
        (
            {"wrapper": IN_A_HELPER},
            Outcome.RUNTIME_ERROR,
            ["IndexError", "at Fuse.py:", "in fused: return helper(x, bias)", "in helper: return x.shape[7]"],
        ),
        ({"wrapper": TRANSPOSED}, Outcome.WRONG_SHAPE, ["shape (256, 64), expected (64, 256)"]),
    ],
)
def test_a_real_failure_is_told_with_its_place(
    executor: LocalExecutor, parts: dict[str, str], outcome: Outcome, words: list[str]
) -> None:
    protocol = load_protocol("strict", num_draws=2, unseen_shapes=0, unseen_dtypes=0, **SHORT_CLOCK)
    verdict = executor.submit(add_relu_mul_pass(**parts), make_task(add_relu_mul()), protocol=protocol, seed=7).result(
        timeout=300
    )
    text = render_feedback(verdict)
    assert [graph.outcome for graph in verdict.graphs] == [outcome], text
    assert [word for word in words if word not in text] == []
    assert not re.search(r"/(tmp|home|root|usr)/", text)
    assert GraphVerdict.model_validate(verdict.graphs[0].model_dump()) == verdict.graphs[0]
