#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "transformer/base/tensor_file.h"

namespace transformer {

/// Adam (§5.3) in one fused pass over all parameters.
class Adam {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.98;
    double epsilon = 1e-9;
  };

  /// `parameters` by name; they are updated in place.
  Adam(std::vector<std::pair<std::string, at::Tensor>> parameters, const Options& options);

  /// One update with the gradients that the parameters hold. Parameters without a gradient stay as they are.
  void step(double rate);
  /// Drops all gradients.
  void clear_gradients();
  /// Scales all gradients so that their joint norm is at most `limit`; returns the norm before.
  at::Tensor clip(double limit);

  /// Moments and step count, by parameter name, for a checkpoint.
  TensorMap state() const;
  /// Throws Error (naming `where`) if a tensor is missing or of another shape.
  void load(const TensorMap& state, const std::string& where);

 private:
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_, first_moments_, second_moments_, steps_;
  Options options_;
};

}  // namespace transformer
