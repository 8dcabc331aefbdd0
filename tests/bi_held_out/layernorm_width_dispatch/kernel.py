"""Layer norm in CUDA: the template follows the hidden size, the grid follows the tokens."""
from torch.utils.cpp_extension import load_inline

CU = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

template <int THREADS>
__device__ __forceinline__ float block_sum(float v) {
  __shared__ float s[THREADS / 32];
  for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
  __syncthreads();
  float t = 0.f;
  #pragma unroll
  for (int i = 0; i < THREADS / 32; ++i) t += s[i];
  return t;
}

template <int THREADS, int VEC>
__global__ void ln(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b,
                   float* __restrict__ y, int hidden, int num_tokens, float eps) {
  const int token = blockIdx.x;
  if (token >= num_tokens) return;
  const float* r = x + (size_t)token * hidden;
  float a = 0.f;
  for (int i = threadIdx.x * VEC; i < hidden; i += THREADS * VEC)
    for (int j = 0; j < VEC; ++j) a += r[i + j];
  const float mean = block_sum<THREADS>(a) / hidden;
  float q = 0.f;
  for (int i = threadIdx.x * VEC; i < hidden; i += THREADS * VEC)
    for (int j = 0; j < VEC; ++j) { float d = r[i + j] - mean; q += d * d; }
  const float inv = rsqrtf(block_sum<THREADS>(q) / hidden + eps);
  for (int i = threadIdx.x * VEC; i < hidden; i += THREADS * VEC)
    for (int j = 0; j < VEC; ++j)
      y[(size_t)token * hidden + i + j] = (r[i + j] - mean) * inv * g[i + j] + b[i + j];
}

#define LAUNCH(T, V) \
  ln<T, V><<<blocks, T, 0, stream>>>(x.data_ptr<float>(), g.data_ptr<float>(), b.data_ptr<float>(), \
                                     y.data_ptr<float>(), hidden, num_tokens, 1e-5f)

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor g, torch::Tensor b) {
  auto y = torch::empty_like(x);
  const int hidden = x.size(-1);
  const int num_tokens = x.numel() / hidden;
  if (num_tokens == 0) return y;
  // whole groups of blocks; those past the last token leave at once
  const int blocks = (num_tokens + 7) / 8 * 8;
  auto stream = at::cuda::getCurrentCUDAStream();
  if (hidden >= 2048 && hidden % 4 == 0) LAUNCH(512, 4);
  else if (hidden % 2 == 0) LAUNCH(128, 2);
  else LAUNCH(128, 1);
  return y;
}
"""


def _load():
    if not hasattr(_load, "ext"):
        _load.ext = load_inline(
            name="held_layernorm_width",
            cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor g, torch::Tensor b);",
            cuda_sources=CU,
            functions=["layer_norm"],
        )
    return _load.ext


def run(x, gamma, beta):
    return _load().layer_norm(x.contiguous(), gamma, beta)
