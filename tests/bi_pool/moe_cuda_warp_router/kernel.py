from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <vector>

constexpr int WARPS_PER_BLOCK = 4;
constexpr int EXPERTS = 32;   // lane e scores expert e

__global__ void router(const float* x, const float* w, float* logits, int* best, int tokens, int dim) {
  const int lane = threadIdx.x % 32;
  const int token = blockIdx.x * WARPS_PER_BLOCK + threadIdx.x / 32;
  if (token >= tokens) return;
  float z = 0.f;
  for (int i = 0; i < dim; ++i) z = fmaf(x[(long)token * dim + i], w[lane * dim + i], z);
  logits[token * EXPERTS + lane] = z;
  float top = z;
  int arg = lane;
  for (int off = 16; off > 0; off >>= 1) {
    const float other = __shfl_xor_sync(0xffffffffu, top, off);
    const int who = __shfl_xor_sync(0xffffffffu, arg, off);
    if (other > top || (other == top && who < arg)) { top = other; arg = who; }
  }
  if (lane == 0) best[token] = arg;
}

std::vector<torch::Tensor> route(torch::Tensor x, torch::Tensor w) {
  const int num_tokens = x.size(0);
  auto logits = torch::empty({num_tokens, EXPERTS}, x.options());
  auto best = torch::empty({num_tokens}, x.options().dtype(torch::kInt32));
  const int blocks = (num_tokens + WARPS_PER_BLOCK - 1) / WARPS_PER_BLOCK;
  router<<<blocks, WARPS_PER_BLOCK * 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), w.data_ptr<float>(), logits.data_ptr<float>(), best.data_ptr<int>(), num_tokens, x.size(1));
  return {logits, best};
}
"""

_cache = {}


def run(x, w):
    if "ext" not in _cache:
        _cache["ext"] = load_inline(
            name="moe_cuda_warp_router_ext",
            cpp_sources="std::vector<torch::Tensor> route(torch::Tensor x, torch::Tensor w);",
            cuda_sources=SOURCE,
            functions=["route"],
        )
    logits, best = _cache["ext"].route(x, w)
    return logits, best
