#if defined(__x86_64__)
// The kernels for AVX-512 with VNNI and BF16, and AMX.
#define TRANSFORMER_KERNELS avx512_amx_kernels
#define TRANSFORMER_KERNELS_NAME "avx512-amx"
#define TRANSFORMER_TILES
#include "transformer/kernels/inference_kernels_body.inc"
#endif
