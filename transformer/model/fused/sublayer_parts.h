#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>

#include "transformer/model/differentiable_once.h"

// What fused sub-layers have in common on whatever device.

namespace transformer {

/// Whether `mask` is none, or one of the keys of each of `batch` sentences: [B, 1, 1, S] bool.
inline bool covers_keys(const std::optional<at::Tensor>& mask, int64_t batch, int64_t keys) {
  return !mask || (mask->scalar_type() == at::kBool && mask->sizes() == at::IntArrayRef{batch, 1, 1, keys});
}

/// Whether kernels, which see no types, take these parameters: float32, or undefined.
inline bool in_float(std::initializer_list<at::Tensor> parameters) {
  return std::all_of(parameters.begin(), parameters.end(), [](const auto& parameter) {
    return !parameter.defined() || parameter.scalar_type() == at::kFloat;
  });
}

/// To be called by a fused sub-layer on x [.., D], with its `first` matrix [.., D], its `last` [D, ..] and the `gain`
/// [D] of its normalisation: throws where they are of other widths, whose ends kernels would not see.
inline void check_widths(const at::Tensor& x, const at::Tensor& first, const at::Tensor& last, const at::Tensor& gain) {
  const int64_t width = x.size(-1);
  TORCH_CHECK(first.size(1) == width && last.size(0) == width && gain.size(0) == width, "a sub-layer from width ",
              first.size(1), " to ", last.size(0), ", normalised at ", gain.size(0), ", was given ", x.sizes());
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
                           "choose_training_kernels(nullptr) before the forward pass takes the modules' general way, "
                           "which has them");
}

}  // namespace transformer
