#include "transformer/training/optimizer.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <fmt/format.h>

#include "transformer/base/error.h"

namespace transformer {

using at::Tensor;

void Optimizer::load(const TensorMap& state, const std::string& where) {
  const at::NoGradGuard no_grad;
  const auto own = this->state();
  std::set<std::string> known;
  for (const auto& [name, into] : own) known.insert(name);
  check_known(state, known, where);
  for (const auto& [name, into] : own) {
    const auto found = state.find(name);
    if (found == state.end() || found->second.sizes() != into.sizes()) {
      throw Error(where, fmt::format("the optimizer's '{}' is missing or of another shape", name),
                  "the checkpoint belongs to a model of other settings");
    }
    Tensor(into).copy_(found->second);
  }
}

void Optimizer::check_known(const TensorMap& state, const std::set<std::string>& known, const std::string& where) {
  for (const auto& [name, tensor] : state) {
    if (known.contains(name)) continue;
    throw Error(
        where, fmt::format("the optimizer knows no '{}'", name),
        "the checkpoint is another optimizer's, or this one makes its state at its first step: it has to when it "
        "is made");
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
  const auto all = gradients();
  if (all.empty()) {
    const auto options = parameters_.empty() ? at::TensorOptions() : parameters_.front().second.options();
    return at::zeros({}, options.dtype(at::kFloat).requires_grad(false));
  }
  // In bfloat16 a norm has eight bits, and in float16 it is soon infinite.
  auto type = at::kFloat;
  for (const auto& gradient : all) type = at::promote_types(type, gradient.scalar_type());
  return at::stack(at::_foreach_norm(all, 2, type)).norm();
}

void Optimizer::clip(double limit, const Tensor& norm) {
  const at::NoGradGuard no_grad;
  if (const auto all = gradients(); !all.empty()) at::_foreach_mul_(all, (limit / (norm + 1e-6)).clamp_max(1.0));
}

}  // namespace transformer
