#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>

#include "transformer/model/differentiable_once.h"

// What fused sub-layers have in common on whatever device.

namespace transformer {

/// Whether `mask` is none, or one of the keys of each of `batch` sentences: [B, 1, 1, S] bool.
inline bool covers_keys(const std::optional<at::Tensor>& mask, int64_t batch, int64_t keys) {
  return !mask || (mask->scalar_type() == at::kBool && mask->sizes() == at::IntArrayRef{batch, 1, 1, keys});
}

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
