"""Gated scalar recurrence h_t = a_t h_{t-1} + x_t, a block a sequence, a thread a segment."""

from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void scan_kernel(const float* a, const float* x, float* h, int length, int segment) {
  extern __shared__ float carry[];   // decay and value of each segment
  const int t = threadIdx.x, n = blockDim.x;
  const float* ar = a + (long)blockIdx.x * length;
  const float* xr = x + (long)blockIdx.x * length;
  const int lo = t * segment, hi = min(lo + segment, length);
  float decay = 1.f, value = 0.f;
  for (int i = lo; i < hi; ++i) {
    value = fmaf(ar[i], value, xr[i]);
    decay *= ar[i];
  }
  carry[t] = decay;
  carry[n + t] = value;
  __syncthreads();
  if (t == 0) {
    float run = 0.f;
    for (int s = 0; s < n; ++s) {
      const float next = fmaf(carry[s], run, carry[n + s]);
      carry[n + s] = run;
      run = next;
    }
  }
  __syncthreads();
  value = carry[n + t];
  for (int i = lo; i < hi; ++i) {
    value = fmaf(ar[i], value, xr[i]);
    h[(long)blockIdx.x * length + i] = value;
  }
}

static int threads_for(int num_seqs) {
  if (num_seqs < 16) return 128;
  return num_seqs < 64 ? 64 : 32;
}

torch::Tensor gated_scan(torch::Tensor a, torch::Tensor x) {
  const int num_seqs = x.size(0), length = x.size(1);
  const int threads = threads_for(num_seqs);
  auto h = torch::empty_like(x);
  scan_kernel<<<num_seqs, threads, 2 * threads * sizeof(float), c10::cuda::getCurrentCUDAStream()>>>(
      a.data_ptr<float>(), x.data_ptr<float>(), h.data_ptr<float>(), length, (length + threads - 1) / threads);
  return h;
}
"""

_ext = []


def run(a, x):
    if not _ext:
        _ext.append(load_inline("linattn_cuda_scan_segments_ext", cuda_sources=SRC, functions=["gated_scan"],
                                cpp_sources="torch::Tensor gated_scan(torch::Tensor a, torch::Tensor x);"))
    return _ext[0].gated_scan(a, x)
