"""Builds the extension once, at import."""

from torch.utils.cpp_extension import load_inline

DECLARATION = "void gated_residual(torch::Tensor x, torch::Tensor g, torch::Tensor r, torch::Tensor o);"

HELPERS = """
#include <torch/extension.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <c10/cuda/CUDAStream.h>

template <typename T> __device__ __forceinline__ float load_float(T v);
template <> __device__ __forceinline__ float load_float<float>(float v) { return v; }
template <> __device__ __forceinline__ float load_float<__half>(__half v) { return __half2float(v); }
template <> __device__ __forceinline__ float load_float<__nv_bfloat16>(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T> __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v) { return v; }
template <> __device__ __forceinline__ __half from_float<__half>(float v) { return __float2half(v); }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16(v); }

// eager stores every intermediate in T
template <typename T> __device__ __forceinline__ float rounded(float v) { return load_float<T>(from_float<T>(v)); }
"""

KERNEL = """
template <typename T>
__global__ void gated_residual_kernel(const T* __restrict__ x, const T* __restrict__ g, const T* __restrict__ r,
                                      T* __restrict__ o, int64_t n) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const float s = rounded<T>(1.0f / (1.0f + expf(-load_float<T>(g[i]))));
    const float y = rounded<T>(load_float<T>(x[i]) * s);
    o[i] = from_float<T>(y + load_float<T>(r[i]));
  }
}

template <typename T>
void launch(const torch::Tensor& x, const torch::Tensor& g, const torch::Tensor& r, torch::Tensor& o) {
  const int64_t n = x.numel();
  if (n == 0) return;
  const int threads = 256;
  const int blocks = static_cast<int>(std::min<int64_t>((n + threads - 1) / threads, 65535));
  gated_residual_kernel<T><<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const T*>(x.data_ptr()), static_cast<const T*>(g.data_ptr()), static_cast<const T*>(r.data_ptr()),
      static_cast<T*>(o.data_ptr()), n);
}

void gated_residual(torch::Tensor x, torch::Tensor g, torch::Tensor r, torch::Tensor o) {
  switch (x.scalar_type()) {
    case torch::kFloat32: launch<float>(x, g, r, o); break;
    case torch::kFloat16: launch<__half>(x, g, r, o); break;
    case torch::kBFloat16: launch<__nv_bfloat16>(x, g, r, o); break;
    default: TORCH_CHECK(false, "unsupported dtype ", x.scalar_type());
  }
}
"""

_extension = load_inline(
    name="gated_residual_ext",
    cpp_sources=[DECLARATION],
    cuda_sources=[HELPERS + KERNEL],
    functions=["gated_residual"],
    extra_cuda_cflags=["-O3", "-lineinfo"],
)
gated_residual_launch = _extension.gated_residual
