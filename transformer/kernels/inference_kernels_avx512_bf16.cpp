#if defined(__x86_64__)
// The kernels for AVX-512 with VNNI and BF16.
#define TRANSFORMER_KERNELS avx512_bf16_kernels
#define TRANSFORMER_KERNELS_NAME "avx512-bf16"
#include "transformer/kernels/inference_kernels_body.inc"
#endif
