CPP_SOURCE = r"""
#include <torch/extension.h>
#include <algorithm>

// out = max(a * b, 0) + c in one pass over contiguous float32 tensors
torch::Tensor mul_relu_add(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& c) {
  TORCH_CHECK(a.is_contiguous() && b.is_contiguous() && c.is_contiguous(), "expected contiguous tensors");
  TORCH_CHECK(a.scalar_type() == torch::kFloat32, "expected float32, got ", a.scalar_type());
  auto out = torch::empty_like(a);
  const float* pa = a.data_ptr<float>();
  const float* pb = b.data_ptr<float>();
  const float* pc = c.data_ptr<float>();
  float* po = out.data_ptr<float>();
  const int64_t n = a.numel();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) {
    const float product = pa[i] * pb[i];
    po[i] = std::max(product, 0.0f) + pc[i];
  }
  return out;
}
"""
