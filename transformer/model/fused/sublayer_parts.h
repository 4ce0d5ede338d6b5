#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <mutex>

#include "transformer/model/differentiable_once.h"

// What fused sub-layers have in common on whatever device.

namespace transformer {

/// For one pass's dropout, the next of the host's default generator: a GPU waits for nothing, and it comes again when a
/// layer is recomputed.
inline uint64_t drawn_seed() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

/// To be called by a fused sub-layer's backward pass: throws where derivatives of derivatives are asked for.
inline void require_first_derivative_of_sublayer() {
  require_first_derivative("fused sub-layers have",
                           "choose_training_kernels(nullptr) takes the modules' general way, which has them");
}

}  // namespace transformer
