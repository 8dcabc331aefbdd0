import functools

import torch
from torch.utils.cpp_extension import load_inline

CU = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>

struct Best { float v; int i; };

__device__ __forceinline__ Best better(Best a, Best b) {
  return (b.v > a.v || (b.v == a.v && b.i < a.i)) ? b : a;
}

__global__ void argmax_kernel(const __half* x, long* tok, float* val, int vocab) {
  __shared__ Best s[256];
  const __half* row = x + (size_t)blockIdx.x * vocab;
  Best best{-INFINITY, vocab};
  for (int i = threadIdx.x; i < vocab; i += 256) best = better(best, Best{__half2float(row[i]), i});
  s[threadIdx.x] = best;
  __syncthreads();
  for (int h = 128; h; h >>= 1) {
    if (threadIdx.x < h) s[threadIdx.x] = better(s[threadIdx.x], s[threadIdx.x + h]);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    tok[blockIdx.x] = s[0].i;
    val[blockIdx.x] = s[0].v;
  }
}

std::vector<torch::Tensor> argmax_rows(torch::Tensor x) {
  int num_requests = x.size(0);
  auto tok = torch::empty({num_requests}, x.options().dtype(torch::kInt64));
  auto val = torch::empty({num_requests}, x.options().dtype(torch::kFloat32));
  argmax_kernel<<<num_requests, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const __half*>(x.data_ptr<at::Half>()), reinterpret_cast<long*>(tok.data_ptr<int64_t>()),
      val.data_ptr<float>(), x.size(1));
  return {tok, val};
}
"""


@functools.cache
def _argmax():
    module = load_inline(
        name="bi_sampling_cuda_argmax",
        cpp_sources="std::vector<torch::Tensor> argmax_rows(torch::Tensor x);",
        cuda_sources=CU,
        functions=["argmax_rows"],
    )
    return module.argmax_rows


def run(logits: torch.Tensor):
    tokens, values = _argmax()(logits)
    return tokens, values
