"""LayerNorm in CUDA C++: one block a token, two passes, a shared-memory tree."""
import torch
from torch.utils.cpp_extension import load_inline

_CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <algorithm>

__device__ __forceinline__ float block_sum(float v, float* sh) {
  const int tid = threadIdx.x;
  sh[tid] = v;
  __syncthreads();
  for (int s = blockDim.x >> 1; s > 0; s >>= 1) {
    if (tid < s) sh[tid] += sh[tid + s];
    __syncthreads();
  }
  float r = sh[0];
  __syncthreads();
  return r;
}

__global__ void layer_norm_kernel(const float* __restrict__ x, const float* __restrict__ g,
                                  const float* __restrict__ b, float* __restrict__ y, int hidden, float eps) {
  extern __shared__ float sh[];
  const float* row = x + (size_t)blockIdx.x * hidden;
  float s = 0.f;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) s += row[i];
  const float mean = block_sum(s, sh) / hidden;
  float q = 0.f;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) { float d = row[i] - mean; q += d * d; }
  const float inv = rsqrtf(block_sum(q, sh) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    y[(size_t)blockIdx.x * hidden + i] = (row[i] - mean) * inv * g[i] + b[i];
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor g, torch::Tensor b, double eps) {
  const int hidden = x.size(-1);
  const int64_t rows = x.numel() / hidden;
  auto y = torch::empty_like(x);
  // few blocks in flight: let each of them be wide; many: leave room for several on an SM
  const int cap = rows < 48 ? 1024 : 256;
  int threads = 32;
  while (threads < cap && threads < hidden) threads <<= 1;
  dim3 grid(rows);
  layer_norm_kernel<<<grid, threads, threads * sizeof(float)>>>(
      x.data_ptr<float>(), g.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), hidden, (float)eps);
  return y;
}
"""
_mod = None


def _ext():
    global _mod
    if _mod is None:
        _mod = load_inline(
            "h2_layernorm_threads",
            cpp_sources="torch::Tensor layer_norm(torch::Tensor, torch::Tensor, torch::Tensor, double);",
            cuda_sources=_CUDA,
            functions=["layer_norm"],
        )
    return _mod


def run(x, gamma, beta):
    return _ext().layer_norm(x.contiguous(), gamma, beta, 1e-5)
