"""Kernel provenance on a CUDA device: what the profiler sees, and whole evaluations without the layers above it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eval_harness.candidate_process.kernel_trace import trace_kernels  # noqa: E402
from eval_harness.executor import LocalExecutor  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.provenance import ReplacementTrace, own_kernel_names, provenance_violations  # noqa: E402
from tests.helpers import ADD_RELU_MUL_RULE, add_relu_mul, make_task, one_rule  # noqa: E402
from tests.test_evaluate_gpu import AUTOTUNED, CUDA_WRAPPER, TRITON_HEADER, WRAPPER  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

HONEST_TRITON = TRITON_HEADER + AUTOTUNED + WRAPPER + ADD_RELU_MUL_RULE
FOREIGN = "import torch\n\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n    return torch.relu(x + bias) * scale\n"
DECOY = TRITON_HEADER + AUTOTUNED + """

@torch.fx.wrap
def fused(x, bias, scale):
    out = torch.empty_like(x)
    _kernel[(1,)](x, bias, scale, out, 1, bias.shape[0])
    return torch.relu(x + bias) * scale
"""
LAYERS_ABOVE = ("source", "dispatch", "structure")


@pytest.fixture(scope="module")
def executor():
    with LocalExecutor("cuda:0") as running:
        yield running


def verdict_of(executor, source, *, disabled=LAYERS_ABOVE):
    protocol = load_protocol("strict", disabled_layers=disabled, num_draws=3, timing_cuda_s=0.3, max_noise=1000.0)
    task = make_task(add_relu_mul())
    (graph,) = executor.submit(one_rule(source), task, protocol=protocol, seed=5).result(timeout=600).graphs
    return graph


def traced_rules(call, files):
    _, kernels, is_complete = trace_kernels(call, torch.device("cuda:0"))
    assert is_complete
    trace = ReplacementTrace.from_json({"rule": "Fuse", "kernels": kernels, "is_complete": is_complete})
    return {violation.rule for violation in provenance_violations([trace], own_kernel_names(files))}, kernels


def test_what_allocation_casts_and_copies_launch_is_free():
    x = torch.randn(256, 384, device="cuda")

    def allowed():
        torch.zeros(8, 8, device="cuda"), torch.ones(8, device="cuda"), torch.full((9,), 2.0, device="cuda")
        half, bits = x.to(torch.float16), x.to(torch.bfloat16).float()
        return x.t().contiguous(), half.t().contiguous(), bits.clone(), torch.empty_like(x).copy_(x), x.long().int()

    rules, kernels = traced_rules(allowed, {})
    assert rules == {"provenance.no-kernel"}, kernels


@pytest.mark.parametrize("call", [torch.relu, lambda x: x @ x, lambda x: x.sum(-1), lambda x: torch.softmax(x, -1),
                                  lambda x: x + x, lambda x: torch.cat([x, x]), lambda x: x[:, [1, 0]]])  # fmt: skip
def test_what_torch_computes_is_foreign(call):
    rules, kernels = traced_rules(lambda: call(torch.ones(128, 128, device="cuda")), {})
    assert rules == {"provenance.foreign-kernel"}, kernels


@pytest.mark.parametrize("source", [HONEST_TRITON, CUDA_WRAPPER + ADD_RELU_MUL_RULE], ids=["triton", "cuda"])
def test_honest_kernels_are_the_candidates_own(executor, source):
    graph = verdict_of(executor, source, disabled=())
    assert graph.violations == [], graph.violations
    assert graph.outcome == "CORRECT", graph.message


@pytest.mark.parametrize("source", [FOREIGN, DECOY], ids=["foreign", "decoy"])
def test_foreign_kernels_are_seen_without_any_other_layer(executor, source):
    graph = verdict_of(executor, source + ADD_RELU_MUL_RULE)
    assert graph.outcome == "VIOLATION", graph.message
    assert {violation.rule for violation in graph.violations} == {"provenance.foreign-kernel"}
