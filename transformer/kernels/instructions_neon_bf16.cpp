#if defined(__aarch64__)
// Kernels for NEON with products of matrices of int8 and bf16.
#define TRANSFORMER_INSTRUCTION_SET "neon-bf16"
#include "transformer/kernels/inference_kernels.inc"
#include "transformer/kernels/instruction_set.h"

const transformer::InstructionSet transformer::neon_bf16_instructions = {&for_inference::kernels, nullptr, nullptr};
#endif
