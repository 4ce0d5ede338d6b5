#include "transformer/model/fused/products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <type_traits>

#include "transformer/kernels/instruction_sets.h"
#include "transformer/kernels/processor.h"
#include "transformer/kernels/product_kernels.h"
#include "transformer/model/fused/parallel.h"

namespace transformer {

namespace {

using at::Tensor;

const ProductKernels* kernels_at_the_start() {
  if (processor().intel && !processor().avx512_amx) return nullptr;
  const auto runnable = runnable_product_kernels();
  return runnable.empty() ? nullptr : runnable.front();
}

std::atomic<const ProductKernels*>& chosen_kernels() {
  static std::atomic<const ProductKernels*> chosen = kernels_at_the_start();
  return chosen;
}

// Kept from product to product: fresh memory would be cleared by the system every time. Begins with a cache line: AMX
// takes half as long again, and longer, where what it loads lies across two.
float* scratch_of(int64_t size) {
  constexpr std::align_val_t line{64};
  const auto free = [](float* memory) { ::operator delete(memory, line); };
  thread_local std::unique_ptr<float, decltype(free)> scratch(nullptr, free);
  thread_local int64_t held = 0;
  if (held < size) {
    held = 0;
    scratch.reset();
    scratch.reset(static_cast<float*>(::operator new(static_cast<size_t>(size) * sizeof(float), line)));
    held = size;
  }
  return scratch.get();
}

template <class T, class R>
using Multiply = void (*)(const Factor<T>&, const Factor<T>&, const ProductSize&, const ProductResult<R>&, float*);

// Shares the result out among threads.
template <class T, class R>
void multiply(const ProductKernels& kernels, Multiply<T, R> multiply, const Tensor& a, const Tensor& b,
              const Tensor& bias, const Tensor& result, bool accumulated) {
  const Factor<T> left = {static_cast<const T*>(a.const_data_ptr()), a.stride(0), a.stride(1)};
  const Factor<T> right = {static_cast<const T*>(b.const_data_ptr()), b.stride(0), b.stride(1)};
  const ProductSize size = {a.size(0), b.size(1), a.size(1)};
  const ProductResult<R> whole = {static_cast<R*>(result.mutable_data_ptr()), result.stride(0), accumulated,
                                  bias.defined() ? bias.const_data_ptr<float>() : nullptr};
  const bool by_rows = size.rows >= size.columns;
  const int64_t count = by_rows ? size.rows : size.columns;
  const int64_t tile = by_rows ? kernels.tile_rows : kernels.tile_columns;
  constexpr double worth_a_thread = 1 << 20;  // multiplications
  const double work =
      static_cast<double>(size.columns) * static_cast<double>(size.depth) * static_cast<double>(size.rows);
  const auto shares = std::clamp<int64_t>(static_cast<int64_t>(work / worth_a_thread), 1, at::get_num_threads());
  const int64_t share = ((count + tile - 1) / tile + shares - 1) / shares * tile;
  parallel_for(0, (count + share - 1) / share, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * share, extent = std::min(count, end * share) - first;
    auto part_left = left, part_right = right;
    auto part = size;
    auto into = whole;
    if (by_rows) {
      part.rows = extent;
      part_left.data += first * left.row_stride;
      into.data += first * whole.stride;
    } else {
      part.columns = extent;
      part_right.data += first * right.column_stride;
      into.data += first;
      if (into.bias) into.bias += first;
    }
    multiply(part_left, part_right, part, into, scratch_of(kernels.scratch(part, std::is_same_v<R, Bf16>)));
  });
}

bool is_factor(const Tensor& x) {
  return x.is_cpu() && x.numel() > 0 && (x.stride(0) == 1 || x.stride(1) == 1);
}

bool has_contiguous_rows(const Tensor& x) {
  return x.size(1) == 1 || x.stride(1) == 1;
}

// Whether own kernels have made it.
bool multiplied(const Tensor& result, const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulated) {
  const auto* kernels = product_kernels();
  if (!kernels || !is_factor(a) || !is_factor(b) || a.scalar_type() != b.scalar_type()) return false;
  if (!has_contiguous_rows(result)) return false;
  const auto from = a.scalar_type(), into = result.scalar_type();
  if (from == at::kFloat && into == at::kFloat && kernels->in_float) {
    multiply(*kernels, kernels->in_float, a, b, bias, result, accumulated);
  } else if (from == at::kBFloat16 && into == at::kFloat && kernels->bf16_into_float) {
    multiply(*kernels, kernels->bf16_into_float, a, b, bias, result, accumulated);
  } else if (from == at::kBFloat16 && into == at::kBFloat16 && !accumulated && kernels->bf16_into_bf16) {
    multiply(*kernels, kernels->bf16_into_bf16, a, b, bias, result, false);
  } else {
    return false;
  }
  return true;
}

// Kernels take the sizes from here and there and would read and write past an end.
void check_factors(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "no product of ", a.sizes(), " and ", b.sizes());
}

Tensor result_of(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return at::empty({a.size(0), b.size(1)}, a.options().dtype(type).requires_grad(false));
}

}  // namespace

Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias) {
  check_factors(a, b);
  TORCH_CHECK(!bias.defined() || bias.sizes() == at::IntArrayRef{b.size(1)}, "a bias of ", bias.sizes(), " for ",
              b.size(1), " columns");
  const auto result = result_of(a, b, a.scalar_type());
  if (multiplied(result, a, b, bias.defined() ? bias.contiguous() : bias, false)) return result;
  return bias.defined() ? at::addmm(bias.to(a.scalar_type()), a, b) : at::mm(a, b);
}

Tensor product_in_float(const Tensor& a, const Tensor& b) {
  check_factors(a, b);
  const auto result = result_of(a, b, at::kFloat);
  product_into(result, a, b);
  return result;
}

void product_into(const Tensor& result, const Tensor& a, const Tensor& b, bool accumulated) {
  check_factors(a, b);
  TORCH_CHECK(result.sizes() == at::IntArrayRef({a.size(0), b.size(1)}), "a product of ", a.sizes(), " and ", b.sizes(),
              " into ", result.sizes());
  if (multiplied(result, a, b, {}, accumulated)) return;
  auto into = result;
  if (result.is_cuda() && result.scalar_type() == at::kFloat && a.scalar_type() != at::kFloat) {
    accumulated ? at::addmm_out(into, result, a, b, at::kFloat) : at::mm_out(into, a, b, at::kFloat);
  } else if (result.scalar_type() != a.scalar_type()) {
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
  return runnable_kernels(&InstructionSet::products);
}

void choose_product_kernels(const ProductKernels* kernels) {
  chosen_kernels() = kernels;
}

}  // namespace transformer
