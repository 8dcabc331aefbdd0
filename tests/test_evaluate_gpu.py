"""Whole evaluations on a CUDA device: Triton and CUDA C++ passes, faults that take the process down, the A/A floor."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eval_harness.executor import LocalExecutor  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.verdict import Outcome  # noqa: E402
from tests.helpers import ADD_RELU_MUL_RULE, add_layer_norm, add_relu_mul, make_task, one_rule  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

STRICT = load_protocol("strict")
TRITON_HEADER = "import torch\nimport triton\nimport triton.language as tl\n"
AUTOTUNED = """

@triton.autotune(
    configs=[triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"]
)
@triton.jit
def _kernel(a, b, c, o, n, d, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    s = tl.load(a + i, mask=m).to(tl.float32) + tl.load(b + i % d, mask=m).to(tl.float32)
    s = tl.maximum(s.to(o.dtype.element_ty).to(tl.float32), 0.0)
    tl.store(o + i, s * tl.load(c + i, mask=m).to(tl.float32), mask=m)
"""
WRAPPER = """

@torch.fx.wrap
def fused(x, bias, scale):
    out = torch.empty_like(x)
    n = x.numel()
    _kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, bias, scale, out, n, bias.shape[0])
    return out
"""
CUDA_WRAPPER = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
__global__ void kernel(const float* a, const float* b, const float* c, float* o, int n, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = fmaxf(a[i] + b[i % d], 0.0f) * c[i];
}
void launch(torch::Tensor a, torch::Tensor b, torch::Tensor c, torch::Tensor o) {
    int n = a.numel();
    kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(),
                                     o.data_ptr<float>(), n, b.numel());
}
"""
module = load_inline(name="add_relu_mul", cpp_sources="void launch(torch::Tensor a, torch::Tensor b, torch::Tensor c, "
                     "torch::Tensor o);", cuda_sources=SOURCE, functions=["launch"])


@torch.fx.wrap
def fused(x, bias, scale):
    out = torch.empty_like(x)
    module.launch(x, bias, scale, out)
    return out
'''


@pytest.fixture(scope="module")
def executor():
    with LocalExecutor("cuda:0") as running:
        yield running


def evaluate(executor, candidate, *graphs, protocol=STRICT):
    return executor.submit(candidate, make_task(*graphs), protocol=protocol, seed=11).result(timeout=600)


def triton_pass(*, kernel=AUTOTUNED, wrapper=WRAPPER):
    return one_rule(TRITON_HEADER + kernel + wrapper + ADD_RELU_MUL_RULE)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_autotuned_triton_pass_is_correct_and_faster(executor, dtype):
    (graph,) = evaluate(executor, triton_pass(), add_relu_mul(rows=4096, columns=1024, dtype=dtype)).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert graph.coverage == pytest.approx(1.0)
    assert graph.gpu_speedup > 1.5
    assert graph.speedup > 0.5  # three eager launches cost about what one launch through an autotuner does


def test_cuda_through_load_inline(executor):
    protocol = load_protocol("strict", graph_timeout_s=240.0)
    candidate = one_rule(CUDA_WRAPPER + ADD_RELU_MUL_RULE)
    (graph,) = evaluate(executor, candidate, add_relu_mul(rows=1024), protocol=protocol).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message


def test_torch_instead_of_a_kernel_is_a_violation(executor):
    wrapper = "\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n    return x + bias\n"
    (graph,) = evaluate(executor, triton_pass(wrapper=wrapper), add_relu_mul()).graphs
    assert graph.outcome is Outcome.VIOLATION


def test_an_illegal_access_kills_one_process_and_the_device_goes_on(executor):
    broken = AUTOTUNED.replace("tl.store(o + i,", "tl.store(o + i + 1099511627776,")
    (graph,) = evaluate(executor, triton_pass(kernel=broken), add_relu_mul()).graphs
    assert graph.outcome is Outcome.RUNTIME_ERROR, graph.message
    (graph,) = evaluate(executor, triton_pass(), add_relu_mul()).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message


def test_a_kernel_that_does_not_compile_is_a_compile_error(executor):
    broken = AUTOTUNED.replace("tl.maximum(", "tl.maximal(")
    (graph,) = evaluate(executor, triton_pass(kernel=broken), add_relu_mul()).graphs
    assert graph.outcome is Outcome.COMPILE_ERROR, graph.message


def test_a_kernel_that_hangs_is_a_timeout(executor):
    loop = "    while tl.load(a) != 12345.678:\n        tl.debug_barrier()\n"
    hang = AUTOTUNED.replace("    m = i < n\n", "    m = i < n\n" + loop)
    protocol = load_protocol("strict", graph_timeout_s=20.0)
    (graph,) = evaluate(executor, triton_pass(kernel=hang), add_relu_mul(), protocol=protocol).graphs
    assert graph.outcome in (Outcome.TIMEOUT, Outcome.COMPILE_ERROR), graph.message
    (graph,) = evaluate(executor, triton_pass(), add_relu_mul()).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message


def test_eager_against_eager_is_one(executor):
    for graph in evaluate(executor, "eager", add_relu_mul(rows=64), add_layer_norm()).graphs:
        assert 0.93 < graph.speedup < 1.07, graph


def test_inductor_goes_through_the_same_stages(executor):
    (graph,) = evaluate(executor, "inductor", add_relu_mul(rows=4096, columns=1024)).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert graph.gpu_speedup > 1.5


def test_passnet_protocol(executor):
    (graph,) = evaluate(executor, triton_pass(), add_relu_mul(rows=4096), protocol=load_protocol("passnet")).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message
