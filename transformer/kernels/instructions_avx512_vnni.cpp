#if defined(__x86_64__)
// Kernels for AVX-512 with VNNI.
#define TRANSFORMER_INSTRUCTION_SET "avx512-vnni"
#include "transformer/kernels/inference_kernels.inc"
#include "transformer/kernels/instruction_set.h"

const transformer::InstructionSet transformer::avx512_vnni_instructions = {&for_inference::kernels, nullptr, nullptr};
#endif
