#if defined(__x86_64__)
// The products for AVX-512 F, BW, DQ and VL.
#define TRANSFORMER_PRODUCT_KERNELS avx512_product_kernels
#define TRANSFORMER_PRODUCT_KERNELS_NAME "avx512"
#include "transformer/kernels/product_kernels_body.inc"
#endif
