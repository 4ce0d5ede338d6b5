#if defined(__x86_64__)
// The kernels for AVX2 and FMA.
#define TRANSFORMER_KERNELS avx2_kernels
#define TRANSFORMER_KERNELS_NAME "avx2"
#include "transformer/kernels/inference_kernels_body.inc"
#endif
