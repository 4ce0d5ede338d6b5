#if defined(__x86_64__)
// The products for AVX2 and FMA.
#define TRANSFORMER_PRODUCT_KERNELS avx2_product_kernels
#define TRANSFORMER_PRODUCT_KERNELS_NAME "avx2"
#include "transformer/kernels/product_kernels_body.inc"
#endif
