// The training kernels for the baseline instruction set of the processor's family.
#define TRANSFORMER_TRAINING_KERNELS portable_training_kernels
#define TRANSFORMER_TRAINING_KERNELS_NAME "portable"
#include "transformer/kernels/training_kernels_body.inc"
