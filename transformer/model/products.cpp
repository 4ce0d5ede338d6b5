#include "transformer/model/products.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace at::native {
// Of LibTorch, which ships no header for it. A LibTorch without it leaves this null.
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta,
                                         float alpha);
}  // namespace at::native

namespace transformer {

namespace {

using at::Tensor;

bool prefers_onednn() {
#if defined(__x86_64__)
  static const bool prefers = at::native::mkldnn_matmul != nullptr && at::globalContext().hasMKLDNN() &&
                              !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
  return prefers;
#else
  return false;
#endif
}

// oneDNN takes rows side by side or columns side by side, nothing else.
bool plain(const Tensor& matrix) {
  return matrix.numel() > 0 && ((matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1)) ||
                                (matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0)));
}

}  // namespace

void product_into(const Tensor& result, const Tensor& a, const Tensor& b, bool accumulated) {
  if (a.is_cpu() && a.scalar_type() == at::kFloat && at::globalContext().userEnabledMkldnn() && prefers_onednn() &&
      plain(a) && plain(b) && result.is_contiguous() && result.numel() > 0) {
    at::native::mkldnn_matmul(a, b, result, accumulated ? 1.0f : 0.0f, 1.0f);
    return;
  }
  auto into = result;
  if (accumulated) {
    at::addmm_out(into, result, a, b);
  } else {
    at::mm_out(into, a, b);
  }
}

Tensor product(const Tensor& a, const Tensor& b) {
  auto result = at::empty({a.size(0), b.size(1)}, a.options().requires_grad(false));
  product_into(result, a, b);
  return result;
}

}  // namespace transformer
