#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "model/reference.h"

namespace transformer::test {

/// Gradients of every parameter against central differences along random directions. `loss` is a double, deterministic
/// function of the parameters.
template <class Loss>
void check_finite_differences(torch::nn::Module& module, const Loss& loss, int directions = 2) {
  module.zero_grad();
  loss().backward();
  torch::NoGradGuard no_grad;
  const double h = 1e-6;
  for (auto& item : module.named_parameters()) {
    INFO(item.key());
    auto& parameter = item.value();
    REQUIRE(parameter.grad().defined());
    CHECK(parameter.grad().abs().max().template item<double>() > 1e-9);  // else a missing gradient could pass
    for (int repeat = 0; repeat < directions; ++repeat) {
      const auto direction = torch::randn_like(parameter), saved = parameter.clone();
      parameter.copy_(saved + h * direction);
      const double above = loss().template item<double>();
      parameter.copy_(saved - h * direction);
      const double below = loss().template item<double>();
      parameter.copy_(saved);
      const double expected = (parameter.grad() * direction).sum().template item<double>();
      CHECK(std::abs((above - below) / (2 * h) - expected) < 1e-6 * std::max(1.0, std::abs(expected)));
    }
  }
}

}  // namespace transformer::test
