#include "transformer/training/adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <fmt/format.h>

#include <optional>

#include "transformer/base/error.h"

namespace transformer {

using at::Tensor;

Adam::Adam(std::vector<std::pair<std::string, Tensor>> parameters, const Options& options) : options_(options) {
  for (auto& [name, parameter] : parameters) {
    names_.push_back(name);
    parameters_.push_back(parameter);
    first_moments_.push_back(at::zeros_like(parameter));
    second_moments_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false)));
  }
}

void Adam::step(double rate, const Tensor& norm) {
  at::NoGradGuard no_grad;
  std::vector<Tensor> parameters, gradients, first, second, steps;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) continue;
    parameters.push_back(parameters_[i]);
    gradients.push_back(parameters_[i].grad());
    first.push_back(first_moments_[i]);
    second.push_back(second_moments_[i]);
    steps.push_back(steps_[i]);
  }
  std::optional<Tensor> skipped;  // 1 or 0
  if (norm.defined()) {
    skipped = norm.isfinite().logical_not().to(at::kFloat);
    at::_foreach_add_(steps, 1 - *skipped);
  } else {
    at::_foreach_add_(steps, 1);
  }
  at::_fused_adam_(parameters, gradients, first, second, {}, steps, rate, options_.beta1, options_.beta2,
                   /*weight_decay=*/0, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{},
                   skipped);
}

void Adam::clear_gradients() {
  for (auto& parameter : parameters_) parameter.mutable_grad().reset();
}

std::vector<Tensor> Adam::gradients() const {
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters_) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

Tensor Adam::gradient_norm() const {
  at::NoGradGuard no_grad;
  return at::stack(at::_foreach_norm(gradients())).norm();
}

void Adam::clip(double limit, const Tensor& norm) {
  at::NoGradGuard no_grad;
  at::_foreach_mul_(gradients(), (limit / (norm + 1e-6)).clamp_max(1.0));
}

TensorMap Adam::state() const {
  TensorMap state;
  for (size_t i = 0; i < names_.size(); ++i) {
    state.emplace("first_moment." + names_[i], first_moments_[i]);
    state.emplace("second_moment." + names_[i], second_moments_[i]);
    state.emplace("step." + names_[i], steps_[i]);
  }
  return state;
}

void Adam::load(const TensorMap& state, const std::string& where) {
  auto fetch = [&](const std::string& name, Tensor& into) {
    const auto found = state.find(name);
    if (found == state.end() || found->second.sizes() != into.sizes()) {
      throw Error(where, fmt::format("the optimizer's '{}' is missing or of another shape", name),
                  "the checkpoint belongs to a model of other settings");
    }
    into.copy_(found->second);
  };
  for (size_t i = 0; i < names_.size(); ++i) {
    fetch("first_moment." + names_[i], first_moments_[i]);
    fetch("second_moment." + names_[i], second_moments_[i]);
    fetch("step." + names_[i], steps_[i]);
  }
}

}  // namespace transformer
