#if defined(__x86_64__)
// Kernels for AVX-512 with VNNI and BF16, and AMX.
#define TRANSFORMER_INSTRUCTION_SET "avx512-amx"
#define TRANSFORMER_TILES
#include "transformer/kernels/inference_kernels.inc"
#include "transformer/kernels/instruction_set.h"
#include "transformer/kernels/product_kernels.inc"

const transformer::InstructionSet transformer::avx512_amx_instructions = {&for_inference::kernels,
                                                                          of_training(for_products::kernels), nullptr};
#endif
