#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

// Matrix products of training: of factors a [M, K] and b [K, N] of one type, either of them perhaps a transposed view,
// without gradient. On a CPU, those of float32 and bfloat16 are made by product_kernels(); the others, and all where
// there are none, by LibTorch. Sizes that do not fit throw c10::Error.

namespace transformer {

struct ProductKernels;  // kernels/product_kernels.h

/// a b + bias, [M, N] of the factors' type; bias [N], float32, may be undefined. Rounded once; LibTorch's products
/// round the bias to that type before.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

/// a b in float32, whatever the factors' type; LibTorch's products on a CPU round to that type before.
at::Tensor product_in_float(const at::Tensor& a, const at::Tensor& b);

/// result = a b, or result + a b where it is to be `accumulated`, for a result [M, N]. One that is neither of the
/// factors' type nor float32, one accumulated in bfloat16, and one whose rows are not contiguous is LibTorch's: rounded
/// on the way.
void product_into(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool accumulated = false);

/// The kernels for this processor, or those that were chosen; null: LibTorch's products. On Intel's processors, where
/// MKL inside LibTorch multiplies float32 as fast, they are those of bfloat16 with AMX at the start, or null.
const ProductKernels* product_kernels();
/// Every set of kernels that this processor can run, the best first.
std::vector<const ProductKernels*> runnable_product_kernels();
/// Chooses the kernels of this process from now on.
void choose_product_kernels(const ProductKernels* kernels);

}  // namespace transformer
