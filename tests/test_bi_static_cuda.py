"""Static batch-invariance analysis of CUDA C++: launches, template arguments, grid-strided sums, atomics, dispatch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.static_cases import Case, analyze_soundly, check

KERNEL = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS) row_sum(const T* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float parts[32];
  const T* row = x + (int64_t)blockIdx.x * n;
  float sum = 0.f;
  for (int i = threadIdx.x; i < n; i += THREADS) {  // threads
    sum += static_cast<float>(row[i]);
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ void block_sum(const float* x, float* y, int n) {
  float sum = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];  // stride
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void part_sum(const float* x, float* part, int n) {
  int chunk = CEIL_DIV(n, gridDim.y);
  int lo = blockIdx.y * chunk;
  int hi = min(n, lo + chunk);
  float sum = 0.f;
  for (int i = lo + threadIdx.x; i < hi; i += blockDim.x) sum += x[blockIdx.x * n + i];  // part
  atomicAdd(&part[blockIdx.x], sum);  // atomic
}

__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = 2.f * x[i];
}

__global__ void warp_rows(const float* x, float* y, int rows, int n) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  float sum = 0.f;
  for (int i = threadIdx.x; i < n; i += 32) sum += x[row * n + i];
  for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(~0u, sum, o);
  if (threadIdx.x == 0) y[row] = sum;
}
"""


def host(body: str) -> str:
    """The kernels above with a host function around `body`."""
    return (
        KERNEL
        + "\ntorch::Tensor forward(torch::Tensor x) {\n  const int B = x.size(0);\n  int n = x.size(1);\n"
        + "  auto y = torch::zeros({B}, x.options());\n"
        + "  const float* xp = x.data_ptr<float>();\n  float* yp = y.data_ptr<float>();\n"
        + body
        + "  return y;\n}\n"
    )


CHOICE = ("reduction order", "choice of kernel", "choice")
CASES = [
    Case("a constant block", host("  row_sum<float, 256><<<B, 256>>>(xp, yp, n);\n"), []),
    Case("a block by the width", host("  block_sum<<<B, n > 4096 ? 1024 : 256>>>(xp, yp, n);\n"), []),
    Case(
        "a block by the batch",
        host("  int threads = B < 64 ? 1024 : 256;\n  block_sum<<<B, threads>>>(xp, yp, n);\n"),
        [("reduction order", "blockDim of block_sum", "stride")],
    ),
    Case(
        "a block doubled up to a bound by the batch",
        host(
            "  int cap = B < 64 ? 1024 : 256;\n  int threads = 32;\n"
            "  while (threads < cap && threads < n) threads <<= 1;\n"
            "  block_sum<<<B, threads>>>(xp, yp, n);\n"
        ),
        [("reduction order", "blockDim of block_sum", "stride")],
    ),
    Case(
        "a block doubled up to the width",
        host("  int threads = 32;\n  while (threads < n) threads <<= 1;\n  block_sum<<<B, threads>>>(xp, yp, n);\n"),
        [],
    ),
    Case(
        "a template argument by the batch",
        host(
            "  if (B < 64) {  // choice\n    row_sum<float, 1024><<<B, 1024>>>(xp, yp, n);\n"
            "  } else {\n    row_sum<float, 256><<<B, 256>>>(xp, yp, n);\n  }\n"
        ),
        [CHOICE],
    ),
    Case(
        "a switch over the batch",
        host(
            "  switch (CEIL_DIV(B, 32)) {  // choice\n"
            "    case 1: row_sum<float, 1024><<<B, 1024>>>(xp, yp, n); break;\n"
            "    default: row_sum<float, 128><<<B, 128>>>(xp, yp, n);\n  }\n"
        ),
        [CHOICE],
    ),
    Case(
        "a grid of parts by the batch",
        host(
            "  int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;\n"
            "  int splits = std::max(1, sms / B);\n  dim3 grid(B, splits);\n"
            "  part_sum<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(xp, yp, n);\n"
        ),
        [("work partitioning", "NUM_SPLITS", "part"), ("work partitioning", "NUM_SPLITS", "atomic")],
    ),
    Case("a grid of constant parts", host("  part_sum<<<dim3(B, 8), 256>>>(xp, yp, n);\n"), []),
    Case("no sum", host("  int t = B < 64 ? 64 : 256;\n  scale<<<CEIL_DIV(B * n, t), t>>>(xp, yp, B * n);\n"), []),
    Case(
        "rows of a block by the batch",
        host("  int per = B < 64 ? 1 : 8;\n  warp_rows<<<CEIL_DIV(B, per), dim3(32, per)>>>(xp, yp, B, n);\n"),
        [],
    ),
    Case("an empty batch", host("  if (B == 0) return y;\n  row_sum<float, 256><<<B, 256>>>(xp, yp, n);\n"), []),
    Case(
        "a plan in a struct",
        "struct Plan {\n  int threads = 256;\n  explicit Plan(int batch) : threads(batch < 16 ? 512 : 128) {}\n};\n"
        + host("  Plan plan(B);\n  block_sum<<<B, plan.threads>>>(xp, yp, n);\n"),
        [("reduction order", "blockDim of block_sum", "stride")],
    ),
    Case(
        "a macro that launches",
        host(
            "#define LAUNCH(T) block_sum<<<B, T>>>(xp, yp, n)\n  auto run = [&](int t) { LAUNCH(t); };\n"
            "  run(B > 8 ? 128 : 256);\n"
        ),
        [("reduction order", "blockDim of block_sum", "stride")],
    ),
    Case(
        "inside a dispatch macro",
        host(
            '  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", [&] {\n'
            "    block_sum<<<B, std::min(1024, 65536 / B)>>>(xp, yp, n);\n  });\n"
        ),
        [("reduction order", "blockDim of block_sum", "stride")],
    ),
    Case(
        "loaded from Python",
        "from torch.utils.cpp_extension import load_inline\n\nSOURCE = r'''"
        + host("  block_sum<<<B, 65536 / B>>>(xp, yp, n);\n")
        + "'''\n\n\ndef run(x):\n"
        "    ext = load_inline(name='s', cpp_sources='', cuda_sources=SOURCE, functions=['forward'])\n"
        "    return ext.forward(x)\n",
        [("reduction order", "blockDim of block_sum", "stride")],
    ),
    Case(
        "a size handed over by Python",
        "from torch.utils.cpp_extension import load_inline\n\nSOURCE = r'''"
        + host("  block_sum<<<B, threads>>>(xp, yp, n);\n").replace(
            "forward(torch::Tensor x)", "forward(torch::Tensor x, int threads)"
        )
        + "'''\n\nEXT = load_inline(name='s', cpp_sources='', cuda_sources=SOURCE, functions=['forward'])\n\n\n"
        "def run(x):\n    return EXT.forward(x, 1024 if x.shape[0] < 8 else 256)\n",
        [("reduction order", "blockDim of block_sum", "stride")],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cuda(case: Case) -> None:
    source = case.source
    if isinstance(source, str) and not source.startswith("from torch"):
        source = {"kernel.cu": source}
    check(Case(case.name, source, case.expected, case.family, case.exact))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(KERNEL)), st.integers(0, len(KERNEL)), st.sampled_from(CASES[:13]))
def test_damaged_text_never_raises(start: int, length: int, case: Case) -> None:
    assert isinstance(case.source, str)
    text = case.source[:start] + case.source[start + length :]
    analyze_soundly({"kernel.cu": text})
