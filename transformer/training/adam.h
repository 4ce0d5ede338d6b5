#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "transformer/model/tensors.h"

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

  /// One update with the gradients that the parameters hold. Parameters without a gradient stay as they are. Where
  /// `norm`, the gradients' joint norm, is given and not finite, nothing changes: the device decides that, and the host
  /// does not wait for it.
  void step(double rate, const at::Tensor& norm = {});
  /// Drops all gradients.
  void clear_gradients();
  /// The joint norm of all gradients, a float32 number on their device.
  at::Tensor gradient_norm() const;
  /// Scales all gradients, whose joint norm is `norm`, so that it is at most `limit`.
  void clip(double limit, const at::Tensor& norm);

  /// Moments and step count, by parameter name, for a checkpoint.
  TensorMap state() const;
  /// Throws Error (naming `where`) if a tensor is missing or of another shape.
  void load(const TensorMap& state, const std::string& where);

 private:
  std::vector<at::Tensor> gradients() const;

  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_, first_moments_, second_moments_, steps_;
  Options options_;
};

}  // namespace transformer
