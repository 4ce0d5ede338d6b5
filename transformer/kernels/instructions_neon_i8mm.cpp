#if defined(__aarch64__)
// Kernels for NEON with products of matrices of int8.
#define TRANSFORMER_INSTRUCTION_SET "neon-i8mm"
#include "transformer/kernels/inference_kernels.inc"
#include "transformer/kernels/instruction_set.h"

const transformer::InstructionSet transformer::neon_i8mm_instructions = {&for_inference::kernels, nullptr, nullptr};
#endif
