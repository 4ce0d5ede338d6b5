#if defined(__x86_64__)
// The kernels for AVX-512 with VNNI.
#define TRANSFORMER_KERNELS avx512_vnni_kernels
#define TRANSFORMER_KERNELS_NAME "avx512-vnni"
#include "transformer/kernels/inference_kernels_body.inc"
#endif
