"""The gate of batch invariance in whole evaluations: what is variant, what is only reported, what has no batch."""

from __future__ import annotations

from typing import Any

import pytest

from eval_harness.feedback import render_feedback
from eval_harness.presets import load_protocol
from eval_harness.summary import is_batch_variant, summarize
from eval_harness.verdict import Outcome, Verdict
from eval_harness.verdict_text import render_verdict
from tests.helpers import ADD_RELU_MUL, SHORT_CLOCK, add_relu_mul, add_relu_mul_pass, make_graph, make_task, one_rule

SHORT = {**SHORT_CLOCK, "num_draws": 2, "unseen_shapes": 0, "unseen_dtypes": 0}
ROW_SUM = "tmp_0 = in_0 * in_0\ntmp_1 = tmp_0.sum(dim=-1)\nreturn (tmp_1,)"
SPLIT_SUM = """import numba
import numpy as np
import torch


@numba.njit
def _row_sums(x, out, parts):
    rows, columns = x.shape
    width = columns // parts
    for i in range(rows):
        total = np.float32(0.0)
        for p in range(parts):
            part = np.float32(0.0)
            for j in range(p * width, (p + 1) * width):
                part += x[i, j] * x[i, j]
            total += part
        out[i] = total


@torch.fx.wrap
def row_sums(x):
    out = torch.empty(x.shape[0], dtype=x.dtype)
    parts = PARTS
    _row_sums(x.numpy(), out.numpy(), parts)
    return out


def pattern(x):
    squares = x * x
    return squares.sum(dim=-1)


def replacement_args(x):
    return (x,)


def replacement_func():
    return row_sums
"""
FIXED = one_rule(SPLIT_SUM.replace("PARTS", "8"))
BY_ROWS = one_rule(SPLIT_SUM.replace("PARTS", "8 if x.shape[0] < 32 else 1"))
SHIFTED = (
    SPLIT_SUM.replace("PARTS", "8")
    .replace("total = np.float32(0.0)\n", "total = np.float32(0.0)\n        shift = (i % 2) * 9\n")
    .replace("part += x[i, j] * x[i, j]", "part += x[i, (j + shift) % columns] * x[i, (j + shift) % columns]")
)
"""A row's place decides where its sum begins, and no size does: only running it shows that."""


def row_sum_graph(rows: int = 16):
    return make_graph("row_sum", ROW_SUM, {"in_0": ((rows, 128), "float32")})


def evaluate(executor: Any, candidate: Any, *graphs: Any, how: str, protocol: str = "reward", **more: Any) -> Verdict:
    settings = load_protocol(protocol, **SHORT, batch_invariance=how, **more)
    return executor.submit(candidate, make_task(*graphs), protocol=settings, seed=7).result(timeout=300)


def test_an_invariant_pass_is_correct_and_the_record_says_what_was_tried(executor) -> None:
    verdict = evaluate(executor, FIXED, row_sum_graph(), how="enforce", protocol="strict")
    (graph,) = verdict.graphs
    assert graph.outcome is Outcome.CORRECT, graph.message
    record = graph.batch_invariance
    assert record is not None and record["outcome"] == "invariant"
    assert record["static"]["findings"] == []
    (part,) = record["parts"]
    assert part["num_contexts"] > 10 and part["confirmed"], part
    assert "16 rows" in part["layout"] and "resizable" in part["layout"]
    assert "batch invariance: 1 of 1" in render_verdict(verdict)
    summary = summarize([verdict])
    assert (summary.num_batch_checked, summary.num_batch_variant) == (1, 0)


def test_the_static_rules_reject_before_anything_runs(executor) -> None:
    verdict = evaluate(executor, BY_ROWS, row_sum_graph(), how="enforce")
    (graph,) = verdict.graphs
    assert graph.outcome is Outcome.BATCH_VARIANT
    assert "Fuse.py" in graph.message and "load" not in verdict.timings
    assert graph.batch_invariance is not None and graph.batch_invariance["static"]["findings"]
    assert verdict.as_score == pytest.approx(0.1)
    assert "BATCH_VARIANT" in render_feedback(verdict)


def test_what_only_running_shows_is_rejected_too(executor) -> None:
    verdict = evaluate(executor, one_rule(SHIFTED), row_sum_graph(), how="enforce")
    (graph,) = verdict.graphs
    assert graph.outcome is Outcome.BATCH_VARIANT, graph.message
    record = graph.batch_invariance
    assert record is not None and record["static"]["findings"] == [] and record["outcome"] == "variant"
    assert record["parts"][0]["difference"]["num_elements"] > 0


def test_a_report_changes_no_outcome(executor) -> None:
    verdict = evaluate(executor, BY_ROWS, row_sum_graph(), how="report")
    (graph,) = verdict.graphs
    assert graph.outcome is Outcome.CORRECT and graph.speedup is not None
    record = graph.batch_invariance
    assert record is not None and record["static"]["findings"] and record["outcome"] == "variant"
    assert is_batch_variant(graph) is True and summarize([verdict]).num_batch_variant == 1


def test_off_records_nothing(executor) -> None:
    (graph,) = evaluate(executor, BY_ROWS, row_sum_graph(), how="off").graphs
    assert graph.outcome is Outcome.CORRECT and graph.batch_invariance is None


def test_operators_of_eager_around_the_part_do_not_count(executor) -> None:
    """The part is looked at alone; the whole graph is recorded beside it."""
    body = ADD_RELU_MUL.replace("return (tmp_2,)", "tmp_3 = tmp_2.sum(dim=0)\n        return (tmp_3,)")
    shape = ((64, 256), "float32")
    graph = make_graph("summed", body, {"in_0": shape, "in_1": ((256,), "float32"), "in_2": shape})
    (found,) = evaluate(executor, add_relu_mul_pass(), graph, how="enforce", protocol="strict").graphs
    assert found.outcome is Outcome.CORRECT, found.message
    record = found.batch_invariance
    assert record is not None and record["outcome"] == "invariant"
    assert "sum" not in record["parts"][0]["graph"] or record["parts"][0]["graph"] != graph.name
    assert record["whole_graph"] is not None


def test_eagers_own_behaviour_is_recorded(executor) -> None:
    (graph,) = evaluate(executor, "eager", add_relu_mul(), how="report").graphs
    assert graph.outcome is Outcome.CORRECT
    assert graph.batch_invariance is not None and graph.batch_invariance["outcome"] == "invariant"


def test_a_graph_without_a_batch_is_not_applicable(executor) -> None:
    body = "tmp_0 = in_0.cumsum(dim=0)\ntmp_1 = torch.relu(tmp_0)\nreturn (tmp_1,)"
    graph = make_graph("running", body, {"in_0": ((64,), "float32")})
    (found,) = evaluate(executor, "eager", graph, how="report").graphs
    assert found.batch_invariance is not None and found.batch_invariance["outcome"] == "not applicable"
    assert is_batch_variant(found) is None
