"""Greedy token and its log-probability in CUDA; large batches go to a side stream, the kernel is the same."""
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cfloat>

template <int THREADS>
__global__ void greedy(const float* __restrict__ logits, int* __restrict__ token, float* __restrict__ logp, int vocab) {
  __shared__ float val[THREADS];
  __shared__ int idx[THREADS];
  const float* z = logits + (size_t)blockIdx.x * vocab;
  float best = -FLT_MAX;
  int at = 0;
  for (int i = threadIdx.x; i < vocab; i += THREADS)
    if (z[i] > best) { best = z[i]; at = i; }
  val[threadIdx.x] = best;
  idx[threadIdx.x] = at;
  __syncthreads();
  for (int h = THREADS / 2; h > 0; h >>= 1) {
    if (threadIdx.x < h) {
      const float o = val[threadIdx.x + h];
      const int oi = idx[threadIdx.x + h];
      if (o > val[threadIdx.x] || (o == val[threadIdx.x] && oi < idx[threadIdx.x])) {
        val[threadIdx.x] = o;
        idx[threadIdx.x] = oi;
      }
    }
    __syncthreads();
  }
  const float top = val[0];
  const int winner = idx[0];
  __syncthreads();
  float s = 0.f;
  for (int i = threadIdx.x; i < vocab; i += THREADS) s += expf(z[i] - top);
  val[threadIdx.x] = s;
  __syncthreads();
  for (int h = THREADS / 2; h > 0; h >>= 1) {
    if (threadIdx.x < h) val[threadIdx.x] += val[threadIdx.x + h];
    __syncthreads();
  }
  if (threadIdx.x == 0) { token[blockIdx.x] = winner; logp[blockIdx.x] = -logf(val[0]); }
}

std::vector<torch::Tensor> greedy_tokens(torch::Tensor logits) {
  const int batch = logits.size(0), vocab = logits.size(1);
  auto token = torch::empty({batch}, logits.options().dtype(torch::kInt32));
  auto logp = torch::empty({batch}, logits.options());
  if (batch == 0) return {token, logp};
  auto stream = at::cuda::getCurrentCUDAStream();
  if (vocab >= 8192)
    greedy<512><<<batch, 512, 0, stream>>>(logits.data_ptr<float>(), token.data_ptr<int>(), logp.data_ptr<float>(), vocab);
  else
    greedy<128><<<batch, 128, 0, stream>>>(logits.data_ptr<float>(), token.data_ptr<int>(), logp.data_ptr<float>(), vocab);
  return {token, logp};
}
"""

_cache = {}


def extension():
    if "ext" not in _cache:
        _cache["ext"] = load_inline("held_greedy_tokens", functions=["greedy_tokens"], cuda_sources=SOURCE,
                                    cpp_sources="std::vector<torch::Tensor> greedy_tokens(torch::Tensor logits);")
    return _cache["ext"]


def run(logits):
    logits = logits.float().contiguous()
    ext = extension()
    if logits.shape[0] <= 64:
        return tuple(ext.greedy_tokens(logits))
    side = _cache.setdefault("stream", torch.cuda.Stream())
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        token, logp = ext.greedy_tokens(logits)
    main.wait_stream(side)
    for t in (logits, token, logp):
        t.record_stream(main)
    return token, logp
