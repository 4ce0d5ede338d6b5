#if defined(__aarch64__)
// Kernels for NEON with products of four int8.
#define TRANSFORMER_INSTRUCTION_SET "neon-dotprod"
#include "transformer/kernels/inference_kernels.inc"
#include "transformer/kernels/instruction_set.h"

const transformer::InstructionSet transformer::neon_dotprod_instructions = {&for_inference::kernels, nullptr, nullptr};
#endif
