from functools import lru_cache

import torch
from torch.utils.cpp_extension import load_inline

CUDA_SRC = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

// y[t, d] = sum_j gate[t, j] * e[t, j, d]; LANES neighbouring threads share one element.
template <int LANES>
__global__ void combine(const float* e, const float* gate, float* y, int topk, int dim) {
  const int lane = threadIdx.x % LANES;
  const int d = blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
  const int t = blockIdx.y;
  float acc = 0.f;
  for (int j = lane; j < topk; j += LANES) acc += gate[t * topk + j] * e[((long)t * topk + j) * dim + d];
  for (int off = LANES / 2; off > 0; off /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, off);
  if (lane == 0) y[(long)t * dim + d] = acc;
}

torch::Tensor combine_experts(torch::Tensor e, torch::Tensor gate) {
  const int num_tokens = e.size(0), topk = e.size(1), dim = e.size(2);
  auto y = torch::empty({num_tokens, dim}, e.options());
  auto s = c10::cuda::getCurrentCUDAStream();
  const float* ep = e.data_ptr<float>();
  const float* gp = gate.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  if (num_tokens <= 8) {
    combine<4><<<dim3(dim / 32, num_tokens), 128, 0, s>>>(ep, gp, yp, topk, dim);
  } else if (num_tokens <= 64) {
    combine<2><<<dim3(dim / 64, num_tokens), 128, 0, s>>>(ep, gp, yp, topk, dim);
  } else {
    combine<1><<<dim3(dim / 128, num_tokens), 128, 0, s>>>(ep, gp, yp, topk, dim);
  }
  return y;
}
"""


@lru_cache
def module():
    return load_inline(
        "moe_cuda_combine_lanes_ext",
        cpp_sources="torch::Tensor combine_experts(torch::Tensor e, torch::Tensor gate);",
        cuda_sources=CUDA_SRC,
        functions=["combine_experts"],
    )


def run(expert_out, gates):
    return module().combine_experts(expert_out, gates)
