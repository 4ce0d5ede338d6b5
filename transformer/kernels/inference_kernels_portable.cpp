// The kernels for baseline instruction set of the processor's family.
#define TRANSFORMER_KERNELS portable_kernels
#define TRANSFORMER_KERNELS_NAME "portable"
#include "transformer/kernels/inference_kernels_body.inc"
