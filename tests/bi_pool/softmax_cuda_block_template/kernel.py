import functools

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cfloat>

template <int BLOCK, bool IS_MAX>
__device__ float block_reduce(float v, float* smem) {
  smem[threadIdx.x] = v;
  __syncthreads();
#pragma unroll
  for (int s = BLOCK / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) {
      float o = smem[threadIdx.x + s];
      smem[threadIdx.x] = IS_MAX ? fmaxf(smem[threadIdx.x], o) : smem[threadIdx.x] + o;
    }
    __syncthreads();
  }
  float r = smem[0];
  __syncthreads();
  return r;
}

template <int BLOCK>
__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float smem[BLOCK];
  const float* xr = x + (size_t)blockIdx.x * n;
  float* yr = y + (size_t)blockIdx.x * n;
  float m = -FLT_MAX;
  for (int i = threadIdx.x; i < n; i += BLOCK) m = fmaxf(m, xr[i]);
  m = block_reduce<BLOCK, true>(m, smem);
  float s = 0.f;
  for (int i = threadIdx.x; i < n; i += BLOCK) s += __expf(xr[i] - m);
  s = block_reduce<BLOCK, false>(s, smem);
  for (int i = threadIdx.x; i < n; i += BLOCK) yr[i] = __expf(xr[i] - m) / s;
}

torch::Tensor softmax_forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int batch_size = x.size(0), n = x.size(-1), rows = x.numel() / n;
  auto stream = at::cuda::getCurrentCUDAStream();
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  if (batch_size <= 8) {
    softmax_kernel<1024><<<rows, 1024, 0, stream>>>(in, out, n);
  } else if (batch_size <= 64) {
    softmax_kernel<512><<<rows, 512, 0, stream>>>(in, out, n);
  } else {
    softmax_kernel<128><<<rows, 128, 0, stream>>>(in, out, n);
  }
  return y;
}
"""


@functools.cache
def module():
    return load_inline(
        name="bi_softmax_cuda_block_template",
        cpp_sources="torch::Tensor softmax_forward(torch::Tensor x);",
        cuda_sources=SOURCE,
        functions=["softmax_forward"],
    )


def run(x: torch.Tensor):
    return module().softmax_forward(x)
