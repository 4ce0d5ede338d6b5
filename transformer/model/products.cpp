#include "transformer/model/products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <atomic>
#include <memory>

namespace transformer {

namespace {

using at::Tensor;

const ProductKernels* kernels_at_the_start() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return nullptr;
#endif
  const auto runnable = runnable_product_kernels();
  return runnable.empty() ? nullptr : runnable.back();
}

std::atomic<const ProductKernels*>& chosen_kernels() {
  static std::atomic<const ProductKernels*> chosen = kernels_at_the_start();
  return chosen;
}

// Kept from product to product: fresh memory would be cleared by the system every time.
float* scratch_of(int64_t size) {
  thread_local std::unique_ptr<float[]> scratch;
  thread_local int64_t held = 0;
  if (held < size) {
    scratch.reset(new float[static_cast<size_t>(size)]);
    held = size;
  }
  return scratch.get();
}

template <class T, class R>
using Multiply = void (*)(const Factor<T>&, const Factor<T>&, const ProductSize&, const ProductResult<R>&, float*);

template <class T, class R>
void multiply(const ProductKernels& kernels, Multiply<T, R> multiply, const Tensor& a, const Tensor& b,
              const Tensor& bias, const Tensor& result, bool accumulated) {
  const Factor<T> left = {static_cast<const T*>(a.const_data_ptr()), a.stride(0), a.stride(1)};
  const Factor<T> right = {static_cast<const T*>(b.const_data_ptr()), b.stride(0), b.stride(1)};
  const ProductSize size = {a.size(0), b.size(1), a.size(1)};
  const ProductResult<R> whole = {static_cast<R*>(result.mutable_data_ptr()), result.stride(0), accumulated,
                                  bias.defined() ? bias.const_data_ptr<float>() : nullptr};
  multiply(left, right, size, whole, scratch_of(kernels.scratch(size)));
}

bool is_factor(const Tensor& x) {
  return x.is_cpu() && x.numel() > 0 && (x.stride(0) == 1 || x.stride(1) == 1);
}

// Whether own kernels have made it.
bool multiplied(const Tensor& result, const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulated) {
  const auto* kernels = product_kernels();
  if (!kernels || at::get_num_threads() > 1 || !is_factor(a) || !is_factor(b) || a.scalar_type() != b.scalar_type())
    return false;
  const bool into_float = result.scalar_type() == at::kFloat;
  if (a.scalar_type() == at::kFloat && into_float) {
    multiply(*kernels, kernels->in_float, a, b, bias, result, accumulated);
    return true;
  }
  if (a.scalar_type() != at::kBFloat16 || !kernels->bf16_into_float) return false;
  if (into_float) {
    multiply(*kernels, kernels->bf16_into_float, a, b, bias, result, accumulated);
  } else {
    multiply(*kernels, kernels->bf16_into_bf16, a, b, bias, result, accumulated);
  }
  return true;
}

Tensor result_of(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return at::empty({a.size(0), b.size(1)}, a.options().dtype(type).requires_grad(false));
}

}  // namespace

Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const auto result = result_of(a, b, a.scalar_type());
  if (multiplied(result, a, b, bias, false)) return result;
  return bias.defined() ? at::addmm(bias.to(a.scalar_type()), a, b) : at::mm(a, b);
}

Tensor product_in_float(const Tensor& a, const Tensor& b) {
  const auto result = result_of(a, b, at::kFloat);
  product_into(result, a, b);
  return result;
}

void product_into(const Tensor& result, const Tensor& a, const Tensor& b, bool accumulated) {
  if (multiplied(result, a, b, {}, accumulated)) return;
  auto into = result;
  if (result.scalar_type() != a.scalar_type()) {
    const auto rounded = at::mm(a, b);
    accumulated ? into.add_(rounded) : into.copy_(rounded);
  } else if (accumulated) {
    at::addmm_out(into, result, a, b);
  } else {
    at::mm_out(into, a, b);
  }
}

const ProductKernels* product_kernels() {
  return chosen_kernels().load(std::memory_order_relaxed);
}

std::vector<const ProductKernels*> runnable_product_kernels() {
  std::vector<const ProductKernels*> kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernels.push_back(&avx2_product_kernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      kernels.push_back(&avx512_product_kernels);
      if (__builtin_cpu_supports("avx512bf16")) kernels.push_back(&avx512_bf16_product_kernels);
    }
  }
#endif
  return kernels;
}

void choose_product_kernels(const ProductKernels* kernels) {
  chosen_kernels() = kernels;
}

}  // namespace transformer
