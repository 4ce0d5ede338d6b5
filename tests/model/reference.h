#pragma once

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "support.h"
#include "transformer/model/tensors.h"

namespace transformer::test {

/// Tensors that tests/reference/`script` wrote: `case/kind/name`, in float32 and float64.
class Reference {
 public:
  explicit Reference(const std::string& script) {
    const TemporaryDirectory folder;
    run_reference(script, fmt::format("'{}'", (folder / "out.safetensors").string()));
    tensors_ = read_tensors(folder / "out.safetensors").tensors;
  }

  const torch::Tensor& at(const std::string& name) const {
    INFO("reference tensor " << name);
    const auto found = tensors_.find(name);
    REQUIRE(found != tensors_.end());
    return found->second;
  }

  /// The case's input, ready to receive a gradient.
  torch::Tensor input(const std::string& name) const { return at(name).clone().requires_grad_(); }

  /// Gives the module the case's weights.
  void load(torch::nn::Module& module, const std::string& name) const {
    torch::NoGradGuard no_grad;
    for (auto& item : module.named_parameters()) {
      const auto& weight = at(name + "/weight/" + item.key());
      INFO(item.key());
      REQUIRE(weight.sizes() == item.value().sizes());
      item.value().set_data(weight.clone());
    }
  }

 private:
  TensorMap tensors_;
};

/// The largest difference, relative to the larger of 1 and the expected tensor's largest element.
inline double difference(const torch::Tensor& actual, const torch::Tensor& expected) {
  REQUIRE(actual.defined());
  REQUIRE(actual.sizes() == expected.sizes());
  REQUIRE(actual.scalar_type() == expected.scalar_type());
  if (expected.numel() == 0) return 0;
  const auto want = expected.detach().to(torch::kFloat64), have = actual.detach().to(torch::kFloat64);
  const double size = std::max(1.0, want.abs().max().item<double>());
  const double largest = (have - want).abs().max().item<double>() / size;
  return std::isnan(largest) ? INFINITY : largest;
}

/// How far two computations of the same thing may lie apart.
inline double tolerance(torch::ScalarType type) {
  return type == torch::kFloat64 ? 1e-10 : 1e-5;
}

/// The gradient of every parameter against the case's.
inline void check_gradients(const torch::nn::Module& module, const Reference& reference, const std::string& name) {
  for (const auto& item : module.named_parameters()) {
    INFO("gradient of " << item.key());
    const auto& expected = reference.at(name + "/gradient/" + item.key());
    REQUIRE(expected.abs().max().item<double>() > 1e-4);  // else a missing gradient would pass
    CHECK(difference(item.value().grad(), expected) < tolerance(expected.scalar_type()));
  }
}

/// What a call says when it throws `E`; fails the test when it does not.
template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

}  // namespace transformer::test
