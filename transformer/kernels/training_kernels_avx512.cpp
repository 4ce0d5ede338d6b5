#if defined(__x86_64__)
// The training kernels for AVX-512 F, BW, DQ and VL.
#define TRANSFORMER_TRAINING_KERNELS avx512_training_kernels
#define TRANSFORMER_TRAINING_KERNELS_NAME "avx512"
#include "transformer/kernels/training_kernels_body.inc"
#endif
