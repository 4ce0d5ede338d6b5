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
#include "transformer/model/fused/fused_layers.h"

// What fused sub-layers have in common on whatever device.

namespace transformer {

/// Whether `mask` is none, or one of the keys of each of `batch` sentences: [B, 1, 1, S] bool.
inline bool covers_keys(const std::optional<at::Tensor>& mask, int64_t batch, int64_t keys) {
  return !mask || (mask->scalar_type() == at::kBool && mask->sizes() == at::IntArrayRef{batch, 1, 1, keys});
}

/// Whether kernels, which see neither types nor strides, take these parameters: contiguous float32, or undefined.
inline bool kernels_take(std::initializer_list<at::Tensor> parameters) {
  return std::all_of(parameters.begin(), parameters.end(), [](const auto& parameter) {
    return !parameter.defined() || (parameter.scalar_type() == at::kFloat && parameter.is_contiguous());
  });
}

/// As an argument that may be undefined: autograd takes it as an optional alone.
inline std::optional<at::Tensor> some(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Throws where the parameter called `name` is of other sizes, whose ends kernels would not see; it may be undefined.
inline void check_sizes(const char* name, const at::Tensor& parameter, at::IntArrayRef sizes) {
  TORCH_CHECK(!parameter.defined() || parameter.sizes() == sizes, "a sub-layer's ", name, " is ", parameter.sizes(),
              " instead of ", sizes);
}

/// Throws where kernels do not take the normalisation within which a sub-layer is `width` wide.
inline void check_parameters(int64_t width, const FusedResidual& residual) {
  check_sizes("gain", residual.gain, {width});
  check_sizes("normalisation's bias", residual.bias, {width});
  TORCH_CHECK(kernels_take({residual.gain, residual.bias}), "a fused normalisation needs contiguous float32");
}

/// To be called by a fused sub-layer on x [.., D]: throws where its parameters do not fit x or each other.
inline void check_parameters(const at::Tensor& x, const FusedProjections& p, const FusedResidual& residual) {
  const int64_t width = x.size(-1), inputs = p.heads * (2 * p.d_k + p.d_v);
  check_sizes("input weight", p.input_weight, {inputs, width});
  check_sizes("input bias", p.input_bias, {inputs});
  check_sizes("output weight", p.output_weight, {width, p.heads * p.d_v});
  check_sizes("output bias", p.output_bias, {width});
  check_parameters(width, residual);
}

/// The same of the other kind of sub-layer.
inline void check_parameters(const at::Tensor& x, const FusedNetwork& network, const FusedResidual& residual) {
  const int64_t width = x.size(-1), inner = network.inner_weight.size(0);
  check_sizes("inner weight", network.inner_weight, {inner, width});
  check_sizes("inner bias", network.inner_bias, {inner});
  check_sizes("outer weight", network.outer_weight, {width, inner});
  check_sizes("outer bias", network.outer_bias, {width});
  check_parameters(width, residual);
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
