#include "transformer/model/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace transformer {

using at::Tensor;

void product_into(const Tensor& result, const Tensor& a, const Tensor& b, bool accumulated) {
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
