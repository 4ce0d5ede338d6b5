#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "transformer/model/tensors.h"

namespace transformer {

/// The exponential moving average of a model's weights over training steps, which validates better than the weights
/// themselves: average ← d · average + (1 - d) · weights, with d = min(decay, (1 + step) / (10 + step)), so that the
/// first weights, which are random, do not linger.
class MovingAverage {
 public:
  /// `parameters` by name; their present values are the average's first.
  MovingAverage(std::vector<std::pair<std::string, at::Tensor>> parameters, double decay);

  /// After optimizer step `step`, counted from 1.
  void update(int64_t step);

  /// Exchanges average and weights; a second time puts them back.
  void swap();

  /// The average, by parameter name.
  TensorMap values() const;
  /// Takes the average from `values`, which holds every parameter's in its shape.
  void load(const TensorMap& values);

 private:
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_, averages_;
  double decay_;
};

}  // namespace transformer
