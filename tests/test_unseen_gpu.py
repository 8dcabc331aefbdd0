"""Unseen shapes, and work beside eager's blocks, on a CUDA device with Triton passes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eval_harness.executor import LocalExecutor  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.verdict import Outcome  # noqa: E402
from tests.helpers import ADD_RELU_MUL_RULE, add_relu_mul, make_task, one_rule  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

QUICK = {"num_draws": 2, "num_clusters": 2, "pairs_per_cluster": 4, "timing_cuda_s": 0.1, "max_noise": 1000.0}
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(a, b, c, o, n, d, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    s = tl.load(a + i, mask=m).to(tl.float32) + tl.load(b + i % d, mask=m).to(tl.float32)
    s = tl.maximum(s.to(o.dtype.element_ty).to(tl.float32), 0.0)
    tl.store(o + i, s * tl.load(c + i, mask=m).to(tl.float32), mask=m)


@torch.fx.wrap
def fused(x, bias, scale):
    out = torch.empty_like(x)
    n = x.numel()
    _kernel[(triton.cdiv(n, 512),)](x, bias, scale, out, n, bias.shape[0], BLOCK=512)
    return out
"""


@pytest.fixture(scope="module")
def executor():
    with LocalExecutor("cuda:0") as running:
        yield running


def only(executor, source, **settings):
    protocol = load_protocol("strict", **QUICK | {"gpu_time": False} | settings)
    task = make_task(add_relu_mul(rows=64, columns=256))
    verdict = executor.submit(one_rule(source + ADD_RELU_MUL_RULE), task, protocol=protocol, seed=4)
    (graph,) = verdict.result(timeout=300).graphs
    return graph


def test_a_general_kernel_is_right_everywhere(executor):
    graph = only(executor, KERNEL)
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert [check.result for check in graph.unseen] == ["correct"] * 3, graph.unseen


def test_a_kernel_for_the_tasks_size_alone_is_wrong(executor):
    graph = only(executor, KERNEL.replace("n = x.numel()", "n = 16384"), unseen_dtypes=0)
    assert graph.outcome is Outcome.WRONG_VALUES and "outside the task's shapes" in graph.message, graph.message


def test_a_device_fault_at_another_shape_is_reported_and_the_graph_is_timed(executor):
    fault = KERNEL.replace("n = x.numel()", "n = x.numel() if x.numel() == 16384 else 1 << 30")
    graph = only(executor, fault, unseen_dtypes=0)
    assert graph.outcome is Outcome.CORRECT and graph.speedup, graph.message
    assert {check.result for check in graph.unseen} <= {"lost", "refused"}, graph.unseen


def test_kernels_launched_beside_eager_are_background_work(executor):
    launching = KERNEL.replace("import torch\n", "import threading\n\nimport torch\n", 1) + """

def _busy():
    z = torch.ones(2048, 2048, device="cuda")
    while True:
        torch.mm(z, z)
        torch.cuda.synchronize()


@torch.fx.wrap
def started(x, bias, scale):
    if threading.active_count() < 2:
        threading.Thread(target=_busy, daemon=True).start()
    return fused(x, bias, scale)
"""
    rule = ADD_RELU_MUL_RULE.replace("return fused", "return started")
    protocol = load_protocol("strict", **QUICK | {"unseen_shapes": 0, "unseen_dtypes": 0}, disabled_layers=["source"])
    verdict = executor.submit(one_rule(launching + rule), make_task(add_relu_mul()), protocol=protocol, seed=4)
    (graph,) = verdict.result(timeout=300).graphs
    assert graph.outcome is Outcome.VIOLATION, graph.message
    # or the trace of one call, which sees kernels that are not the candidate's
    assert {violation.layer for violation in graph.violations} <= {"behaviour", "provenance"}, graph.violations
