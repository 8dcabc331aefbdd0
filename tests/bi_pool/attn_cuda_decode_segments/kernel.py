from functools import lru_cache

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

constexpr int DIM = 32;      // one lane a channel
constexpr int MAX_WARPS = 8;

// A block a (row, head); a warp a segment of the keys.
__global__ void decode_kernel(const float* q, const float* k, const float* v, float* out, int heads, int len, int warps) {
  __shared__ float s_max[MAX_WARPS], s_sum[MAX_WARPS], s_acc[MAX_WARPS][DIM];
  const int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float qd = q[((long)row * heads + head) * DIM + lane] * rsqrtf((float)DIM);
  const int seg = (len + warps - 1) / warps;
  const int end = min(len, (warp + 1) * seg);
  float m = -INFINITY, l = 0.f, acc = 0.f;
  for (int s = warp * seg; s < end; ++s) {
    const long at = ((long)row * len + s) * DIM + lane;
    float x = qd * k[at];
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    const float m_new = fmaxf(m, x);
    const float fix = expf(m - m_new), p = expf(x - m_new);
    acc = acc * fix + p * v[at];
    l = l * fix + p;
    m = m_new;
  }
  if (lane == 0) { s_max[warp] = m; s_sum[warp] = l; }
  s_acc[warp][lane] = acc;
  __syncthreads();
  if (warp == 0) {
    float top = -INFINITY;
    for (int w = 0; w < warps; ++w) top = fmaxf(top, s_max[w]);
    float total = 0.f, o = 0.f;
    for (int w = 0; w < warps; ++w) {
      const float f = expf(s_max[w] - top);
      total += f * s_sum[w];
      o += f * s_acc[w][lane];
    }
    out[((long)row * heads + head) * DIM + lane] = o / total;
  }
}

torch::Tensor decode(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
  const int bsz = q.size(0), heads = q.size(1), len = k.size(1);
  int warps = MAX_WARPS;
  while (warps > 1 && bsz * heads * warps > 512) warps /= 2;
  auto out = torch::empty_like(q);
  decode_kernel<<<dim3(heads, bsz), warps * 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), out.data_ptr<float>(), heads, len, warps);
  return out;
}
"""

CPP = "torch::Tensor decode(torch::Tensor q, torch::Tensor k, torch::Tensor v);"


@lru_cache(None)
def extension():
    return load_inline("attn_cuda_decode_segments_ext", cpp_sources=CPP, cuda_sources=CUDA, functions=["decode"])


def run(q, k, v):
    return extension().decode(q.contiguous(), k.contiguous(), v.contiguous())
