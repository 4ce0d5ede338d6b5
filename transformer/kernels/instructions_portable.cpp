// Kernels for the baseline instruction set of the processor's family.
#if defined(__aarch64__)
#define TRANSFORMER_INSTRUCTION_SET "neon"
#else
#define TRANSFORMER_INSTRUCTION_SET "portable"
#endif
#include "transformer/kernels/inference_kernels.inc"
#include "transformer/kernels/instruction_set.h"
#include "transformer/kernels/training_kernels.inc"

const transformer::InstructionSet transformer::portable_instructions = {&for_inference::kernels, nullptr,
                                                                        of_training(for_training::kernels)};
