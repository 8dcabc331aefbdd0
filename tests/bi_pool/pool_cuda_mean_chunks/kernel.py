import functools

import torch
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor mean_pool(torch::Tensor x);"

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>
#include <algorithm>

struct PoolPlan {
  int tokens_per_block;
  int blocks;
  PoolPlan(int bsz, int seq) {
    int want = std::max(1, 512 / bsz);
    tokens_per_block = std::max(16, (seq + want - 1) / want);
    blocks = (seq + tokens_per_block - 1) / tokens_per_block;
  }
};

__global__ void chunk_sums(const __half* __restrict__ x, float* __restrict__ ws, int seq, int dim, int chunk) {
  int d = threadIdx.x;
  int lo = blockIdx.y * chunk, hi = min(seq, lo + chunk);
  float acc = 0.f;
  for (int s = lo; s < hi; ++s) acc += __half2float(x[((size_t)blockIdx.x * seq + s) * dim + d]);
  ws[((size_t)blockIdx.x * gridDim.y + blockIdx.y) * dim + d] = acc;
}

__global__ void merge(const float* __restrict__ ws, float* __restrict__ y, int blocks, int dim, float inv) {
  float acc = 0.f;
  for (int b = 0; b < blocks; ++b) acc += ws[((size_t)blockIdx.x * blocks + b) * dim + threadIdx.x];
  y[(size_t)blockIdx.x * dim + threadIdx.x] = acc * inv;
}

torch::Tensor mean_pool(torch::Tensor x) {
  const int bsz = x.size(0), seq = x.size(1), dim = x.size(2);
  TORCH_CHECK(dim <= 1024, "one thread a column: dim must be at most 1024, got ", dim);
  PoolPlan plan(bsz, seq);
  auto options = x.options().dtype(torch::kFloat32);
  auto ws = torch::empty({bsz, plan.blocks, dim}, options);
  auto y = torch::empty({bsz, dim}, options);
  auto stream = at::cuda::getCurrentCUDAStream();
  chunk_sums<<<dim3(bsz, plan.blocks), dim, 0, stream>>>(
      reinterpret_cast<const __half*>(x.data_ptr<at::Half>()), ws.data_ptr<float>(), seq, dim, plan.tokens_per_block);
  merge<<<bsz, dim, 0, stream>>>(ws.data_ptr<float>(), y.data_ptr<float>(), plan.blocks, dim, 1.f / seq);
  return y;
}
"""


@functools.lru_cache(None)
def _load():
    return load_inline(name="bi_pool_cuda_mean_chunks", cpp_sources=[CPP], cuda_sources=[CUDA], functions=["mean_pool"])


def run(x: torch.Tensor):
    return _load().mean_pool(x)
