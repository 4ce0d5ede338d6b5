#if defined(__x86_64__)
// Compiled for AVX-512 F, BW, DQ and VL (see CMakeLists.txt).

#include "emulated_amx_kernels.h"

#include "emulated_amx.h"

#define TRANSFORMER_INSTRUCTION_SET "emulated AMX"
#define TRANSFORMER_TILES
#include "transformer/kernels/inference_kernels.inc"

const transformer::Kernels transformer::emulated_amx_kernels = for_inference::kernels;
#endif
