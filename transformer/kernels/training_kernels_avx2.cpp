#if defined(__x86_64__)
// The training kernels for AVX2 and FMA.
#define TRANSFORMER_TRAINING_KERNELS avx2_training_kernels
#define TRANSFORMER_TRAINING_KERNELS_NAME "avx2"
#include "transformer/kernels/training_kernels_body.inc"
#endif
