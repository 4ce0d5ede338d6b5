#if defined(__x86_64__)
// The products for AVX-512 with BF16.
#define TRANSFORMER_PRODUCT_KERNELS avx512_bf16_product_kernels
#define TRANSFORMER_PRODUCT_KERNELS_NAME "avx512-bf16"
#include "transformer/kernels/product_kernels_body.inc"
#endif
