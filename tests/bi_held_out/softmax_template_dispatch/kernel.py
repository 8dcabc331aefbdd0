"""Row softmax in CUDA with two templates: a warp a row, or a block a row."""
import torch
from torch.utils.cpp_extension import load_inline

KERNELS = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cfloat>

template <int WARPS>
__device__ float share_max(float v, float* pad) {
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  if (WARPS == 1) return v;
  if ((threadIdx.x & 31) == 0) pad[threadIdx.x >> 5] = v;
  __syncthreads();
  v = pad[0];
  for (int i = 1; i < WARPS; ++i) v = fmaxf(v, pad[i]);
  __syncthreads();
  return v;
}

template <int WARPS>
__device__ float share_sum(float v, float* pad) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if (WARPS == 1) return v;
  if ((threadIdx.x & 31) == 0) pad[threadIdx.x >> 5] = v;
  __syncthreads();
  v = 0.f;
  for (int i = 0; i < WARPS; ++i) v += pad[i];
  __syncthreads();
  return v;
}

template <int WARPS, int VEC>
__global__ void softmax_rows(const float* __restrict__ in, float* __restrict__ out, int cols) {
  __shared__ float pad[WARPS];
  const float* x = in + (size_t)blockIdx.x * cols;
  float* y = out + (size_t)blockIdx.x * cols;
  float m = -FLT_MAX;
  for (int c = threadIdx.x * VEC; c < cols; c += WARPS * 32 * VEC)
    #pragma unroll
    for (int j = 0; j < VEC; ++j) m = fmaxf(m, x[c + j]);
  m = share_max<WARPS>(m, pad);
  float s = 0.f;
  for (int c = threadIdx.x * VEC; c < cols; c += WARPS * 32 * VEC)
    #pragma unroll
    for (int j = 0; j < VEC; ++j) s += expf(x[c + j] - m);
  s = share_sum<WARPS>(s, pad);
  for (int c = threadIdx.x * VEC; c < cols; c += WARPS * 32 * VEC)
    #pragma unroll
    for (int j = 0; j < VEC; ++j) y[c + j] = expf(x[c + j] - m) / s;
}

template <int WARPS, int VEC>
void launch(torch::Tensor x, torch::Tensor y) {
  softmax_rows<WARPS, VEC><<<x.size(0), WARPS * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1));
}

torch::Tensor softmax_forward(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2 && x.size(1) % 4 == 0, "columns must be a multiple of four");
  auto y = torch::empty_like(x);
  const auto rows = x.size(0);
  const bool crowded = rows >= 48;
  if (crowded) launch<1, 4>(x, y);
  else launch<8, 1>(x, y);
  return y;
}
"""

ext = None


class ModelNew(torch.nn.Module):
    def forward(self, x):
        global ext
        if ext is None:
            ext = load_inline(name="held_softmax_templates", cuda_sources=KERNELS, functions=["softmax_forward"],
                              cpp_sources="torch::Tensor softmax_forward(torch::Tensor x);")
        return ext.softmax_forward(x.contiguous())


def run(x):
    return ModelNew()(x)
