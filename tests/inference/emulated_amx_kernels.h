#pragma once

#include "transformer/kernels/inference_kernels.h"

namespace transformer {

#if defined(__x86_64__)
/// The kernels for AMX with its instructions emulated, for processors with AVX-512.
extern const Kernels emulated_amx_kernels;
#endif

}  // namespace transformer
