"""Weighted token choice in CUDA: one block a request, inverse transform with a counter-based generator."""
import torch
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <curand_kernel.h>

constexpr int kThreads = 256;

__global__ void choose_token(const float* __restrict__ prob, int64_t* __restrict__ token, int vocab,
                             unsigned long long seed, unsigned long long offset) {
  __shared__ float part[kThreads];
  __shared__ float goal;
  const float* p = prob + (size_t)blockIdx.x * vocab;
  const int per = (vocab + kThreads - 1) / kThreads;
  const int lo = min(vocab, (int)threadIdx.x * per), hi = min(vocab, lo + per);
  float mine = 0.f;
  for (int i = lo; i < hi; ++i) mine += p[i];
  part[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0.f;
    for (int i = 0; i < kThreads; ++i) { float here = part[i]; part[i] = all; all += here; }
    curandStatePhilox4_32_10_t st;
    curand_init(seed, 0, offset + blockIdx.x, &st);
    goal = curand_uniform(&st) * all;
    token[blockIdx.x] = vocab - 1;
  }
  __syncthreads();
  float run = part[threadIdx.x];
  for (int i = lo; i < hi; ++i) {
    float next = run + p[i];
    if (run < goal && goal <= next) token[blockIdx.x] = i;
    run = next;
  }
}

torch::Tensor choose(torch::Tensor prob, int64_t seed, int64_t step) {
  const int64_t num_requests = prob.size(0);
  auto token = torch::empty({num_requests}, prob.options().dtype(torch::kInt64));
  // every step of the engine uses up one number a request
  const unsigned long long offset = (unsigned long long)step * num_requests;
  choose_token<<<num_requests, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      prob.data_ptr<float>(), token.data_ptr<int64_t>(), prob.size(1), seed, offset);
  return token;
}
"""

HEADER = "torch::Tensor choose(torch::Tensor prob, int64_t seed, int64_t step);"


class TokenChooser:
    _built = None

    @classmethod
    def built(cls):
        if cls._built is None:
            cls._built = load_inline("held_choose_token", cpp_sources=HEADER, cuda_sources=SRC, functions=["choose"])
        return cls._built

    def __init__(self, seed):
        self.seed = seed

    def step(self, prob, number):
        return self.built().choose(prob, self.seed, number)


def run(logits):
    weights = torch.exp(logits.float() - logits.float().amax(dim=-1, keepdim=True)).contiguous()
    return TokenChooser(seed=2024).step(weights, 7)
