#include "transformer/training/adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <utility>

namespace transformer {

using at::Tensor;

Adam::Adam(NamedParameters given, const Options& options) : Optimizer(std::move(given)), options_(options) {
  for (const auto& [name, parameter] : parameters()) {
    if (!parameter.is_non_overlapping_and_dense()) {
      throw std::invalid_argument(
          fmt::format("Adam: the parameter '{}' has gaps in memory, or lies over itself", name));
    }
    first_moments_.push_back(at::zeros_like(parameter));
    second_moments_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false)));
  }
}

void Adam::step(double rate, const Tensor& norm) {
  at::NoGradGuard no_grad;
  std::vector<Tensor> updated, gradients, first, second, steps;
  for (size_t i = 0; i < parameters().size(); ++i) {
    const auto& parameter = parameters()[i].second;
    if (!parameter.grad().defined()) continue;
    // The fused pass sees no strides. A gradient that autograd made lies as its parameter does.
    const auto& gradient = parameter.grad();
    const bool alike = gradient.strides() == parameter.strides();
    updated.push_back(parameter);
    gradients.push_back(alike ? gradient : at::empty_like(parameter).copy_(gradient));
    first.push_back(first_moments_[i]);
    second.push_back(second_moments_[i]);
    steps.push_back(steps_[i]);
  }
  if (updated.empty()) return;
  std::optional<Tensor> skipped;  // 1 or 0
  if (norm.defined()) {
    skipped = norm.isfinite().logical_not().to(at::kFloat);
    at::_foreach_add_(steps, 1 - *skipped);
  } else {
    at::_foreach_add_(steps, 1);
  }
  at::_fused_adam_(updated, gradients, first, second, {}, steps, rate, options_.beta1, options_.beta2,
                   /*weight_decay=*/0, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{},
                   skipped);
}

TensorMap Adam::state() const {
  TensorMap state;
  for (size_t i = 0; i < parameters().size(); ++i) {
    const auto& name = parameters()[i].first;
    state.emplace("first_moment." + name, first_moments_[i]);
    state.emplace("second_moment." + name, second_moments_[i]);
    state.emplace("step." + name, steps_[i]);
  }
  return state;
}

}  // namespace transformer
