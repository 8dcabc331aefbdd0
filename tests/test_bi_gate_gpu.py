"""The gate of batch invariance on a CUDA device: Triton passes whose split follows the rows, and whose does not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eval_harness.executor import LocalExecutor  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.verdict import GraphVerdict, Outcome  # noqa: E402
from tests.helpers import SHORT_CLOCK, make_graph, make_task, one_rule  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

PASS = """import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, o, columns, PART: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, PART):
        values = tl.load(x + row * columns + start + tl.arange(0, PART))
        total += tl.sum(values * values)
    tl.store(o + row, total)


@torch.fx.wrap
def row_sums(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    _kernel[(x.shape[0],)](x, out, x.shape[1], PART=WIDTH)
    return out


def pattern(x):
    squares = x * x
    return squares.sum(dim=-1)


def replacement_args(x):
    return (x,)


def replacement_func():
    return row_sums
"""


@pytest.fixture(scope="module")
def executor():
    with LocalExecutor("cuda:0") as running:
        yield running


def evaluate(executor, width: str, how: str) -> GraphVerdict:
    body = "tmp_0 = in_0 * in_0\ntmp_1 = tmp_0.sum(dim=-1)\nreturn (tmp_1,)"
    graph = make_graph("row_sum", body, {"in_0": ((16, 4096), "float32")})
    settings = {**SHORT_CLOCK, "num_draws": 2, "unseen_shapes": 0, "unseen_dtypes": 0, "batch_invariance": how}
    verdict = executor.submit(
        one_rule(PASS.replace("WIDTH", width)), make_task(graph), protocol=load_protocol("reward", **settings), seed=3
    )
    (found,) = verdict.result(timeout=300).graphs
    return found


def test_a_fixed_width_is_invariant(executor) -> None:
    graph = evaluate(executor, "512", "enforce")
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert graph.batch_invariance is not None and graph.batch_invariance["outcome"] == "invariant"


def test_a_width_by_rows_is_seen_by_rules_and_by_running_it(executor) -> None:
    graph = evaluate(executor, "512 if x.shape[0] < 32 else 128", "report")
    record = graph.batch_invariance
    assert record is not None and record["static"]["findings"] and record["outcome"] == "variant", graph.message
    assert evaluate(executor, "512 if x.shape[0] < 32 else 128", "enforce").outcome is Outcome.BATCH_VARIANT
