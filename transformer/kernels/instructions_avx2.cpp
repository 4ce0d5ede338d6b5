#if defined(__x86_64__)
// Kernels for AVX2 and FMA.
#define TRANSFORMER_INSTRUCTION_SET "avx2"
#include "transformer/kernels/inference_kernels.inc"
#include "transformer/kernels/instruction_set.h"
#include "transformer/kernels/product_kernels.inc"
#include "transformer/kernels/training_kernels.inc"

const transformer::InstructionSet transformer::avx2_instructions = {
    &for_inference::kernels, of_training(for_products::kernels), of_training(for_training::kernels)};
#endif
