#pragma once

#include <ATen/core/Tensor.h>

namespace transformer {

/// result = a b, or result + a b where it is to be `accumulated`, for a [M, K], b [K, N] and result [M, N] of one type,
/// without gradient. Either factor may be a transposed view. By the library that is fastest on the processor at hand:
/// MKL's float32 products keep to narrower instructions on processors of another maker than oneDNN's do.
void product_into(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool accumulated = false);

/// a b, [M, N].
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

}  // namespace transformer
