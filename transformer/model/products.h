#pragma once

#include <ATen/core/Tensor.h>

namespace transformer {

/// result = a b, or result + a b where it is to be `accumulated`, for a [M, K], b [K, N] and result [M, N] of one type,
/// without gradient. Either factor may be a transposed view.
///
/// By at::mm, although oneDNN's float32 product inside LibTorch 2.11 (at::native::mkldnn_matmul) is faster on
/// processors that MKL uses narrower instructions on: it corrupted the heap in one run of training of a hundred.
void product_into(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool accumulated = false);

/// a b, [M, N].
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

}  // namespace transformer
