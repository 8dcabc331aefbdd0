import torch
from torch.utils.cpp_extension import load_inline

_cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

#define WARPS 4
#define HEAD_DIM 32

__global__ void __launch_bounds__(WARPS * 32)
flash_decode(const float* q, const float* k, const float* v, const int* lens, float* out, int heads, int max_len) {
  __shared__ float sm[WARPS], sl[WARPS], so[WARPS][HEAD_DIM];
  int h = blockIdx.x, b = blockIdx.y;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int len = lens[b];
  float qv = q[((long)b * heads + h) * HEAD_DIM + lane] * 0.17677669529663687f;
  float m = -INFINITY, l = 0.f, o = 0.f;
  // keys are dealt to the warps round-robin
  for (int s = warp; s < len; s += WARPS) {
    const long row = ((long)b * max_len + s) * HEAD_DIM;
    float x = qv * k[row + lane];
#pragma unroll
    for (int off = 16; off > 0; off >>= 1) x += __shfl_xor_sync(0xffffffffu, x, off);
    float mn = fmaxf(m, x), f = expf(m - mn), p = expf(x - mn);
    o = o * f + p * v[row + lane];
    l = l * f + p;
    m = mn;
  }
  if (lane == 0) { sm[warp] = m; sl[warp] = l; }
  so[warp][lane] = o;
  __syncthreads();
  if (warp != 0) return;
  float top = sm[0];
  for (int w = 1; w < WARPS; ++w) top = fmaxf(top, sm[w]);
  float tl = 0.f, to = 0.f;
  for (int w = 0; w < WARPS; ++w) {
    float f = expf(sm[w] - top);
    tl += f * sl[w];
    to += f * so[w][lane];
  }
  out[((long)b * heads + h) * HEAD_DIM + lane] = to / tl;
}

torch::Tensor flash_decode_cuda(torch::Tensor q, torch::Tensor k, torch::Tensor v, torch::Tensor lens) {
  auto out = torch::empty_like(q);
  dim3 grid(q.size(1), q.size(0));
  flash_decode<<<grid, WARPS * 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), lens.data_ptr<int>(), out.data_ptr<float>(),
      q.size(1), k.size(1));
  return out;
}
"""

_ext = None


def _get():
    global _ext
    if _ext is None:
        _ext = load_inline(
            name="attn_cuda_decode_fixed_ext",
            cpp_sources="torch::Tensor flash_decode_cuda(torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor);",
            cuda_sources=_cuda_source,
            functions=["flash_decode_cuda"],
            extra_cuda_cflags=["-O2"],
        )
    return _ext


def run(q, k, v, lens):
    return _get().flash_decode_cuda(q, k, v, lens)
