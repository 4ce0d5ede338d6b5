#if defined(__x86_64__)
// The kernels for AVX-512 F, BW, DQ and VL.
#define TRANSFORMER_KERNELS avx512_kernels
#define TRANSFORMER_KERNELS_NAME "avx512"
#include "transformer/kernels/inference_kernels_body.inc"
#endif
