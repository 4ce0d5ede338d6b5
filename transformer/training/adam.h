#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "transformer/training/optimizer.h"

namespace transformer {

/// Adam (§5.3) in one fused pass over all parameters.
class Adam : public Optimizer {
 public:
  /// The paper's by default (§5.3).
  struct Options {
    double beta1 = 0.9;     // decay of the mean of gradients
    double beta2 = 0.98;    // decay of the mean of their squares
    double epsilon = 1e-9;  // what is added to its root
  };

  /// `parameters` by name; they are updated in place. Throws std::invalid_argument for one that has gaps in memory,
  /// such as a column of a matrix, or lies over itself: LibTorch's pass would write to its neighbours.
  Adam(NamedParameters parameters, const Options& options);

  /// Where `norm` is given and not finite, nothing changes: the device decides that, and the host does not wait for it.
  void step(double rate, const at::Tensor& norm = {}) override;
  /// Moments and step counts.
  TensorMap state() const override;

 private:
  std::vector<at::Tensor> first_moments_, second_moments_, steps_;
  Options options_;
};

}  // namespace transformer
