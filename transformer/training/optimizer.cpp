#include "transformer/training/optimizer.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <fmt/format.h>

#include "transformer/base/error.h"

namespace transformer {

using at::Tensor;

void Optimizer::load(const TensorMap& state, const std::string& where) {
  const at::NoGradGuard no_grad;
  for (auto& [name, into] : this->state()) {
    const auto found = state.find(name);
    if (found == state.end() || found->second.sizes() != into.sizes()) {
      throw Error(where, fmt::format("the optimizer's '{}' is missing or of another shape", name),
                  "the checkpoint belongs to a model of other settings");
    }
    Tensor(into).copy_(found->second);
  }
}

void Optimizer::clear_gradients() {
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad().reset();
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> gradients;
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

Tensor Optimizer::gradient_norm() const {
  const at::NoGradGuard no_grad;
  return at::stack(at::_foreach_norm(gradients())).norm();
}

void Optimizer::clip(double limit, const Tensor& norm) {
  const at::NoGradGuard no_grad;
  at::_foreach_mul_(gradients(), (limit / (norm + 1e-6)).clamp_max(1.0));
}

}  // namespace transformer
