#pragma once

#include "transformer/kernels/product_kernels.h"

namespace transformer {

#if defined(__x86_64__)
/// The products of bf16 by AMX with its instructions emulated, for processors with AVX-512.
extern const ProductKernels emulated_amx_products;
#endif

}  // namespace transformer
