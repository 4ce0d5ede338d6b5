#if defined(__x86_64__)
// Compiled for AVX-512 F, BW, DQ and VL (see CMakeLists.txt).

#include "emulated_amx_products.h"

#include "emulated_amx.h"

#define TRANSFORMER_INSTRUCTION_SET "emulated AMX"
#define TRANSFORMER_TILES
#include "transformer/kernels/product_kernels.inc"

const transformer::ProductKernels transformer::emulated_amx_products = for_products::kernels;
#endif
