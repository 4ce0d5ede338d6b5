#include "transformer/training/moving_average.h"

#include <ATen/ops/_foreach_lerp.h>

#include <algorithm>

namespace transformer {

MovingAverage::MovingAverage(std::vector<std::pair<std::string, at::Tensor>> parameters, double decay) : decay_(decay) {
  for (auto& [name, parameter] : parameters) {
    names_.push_back(name);
    parameters_.push_back(parameter.detach());
    averages_.push_back(parameter.detach().clone());
  }
}

void MovingAverage::update(int64_t step) {
  const auto s = static_cast<double>(step);
  at::_foreach_lerp_(averages_, parameters_, 1 - std::min(decay_, (1 + s) / (10 + s)));
}

void MovingAverage::swap() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto weights = parameters_[i].clone();
    parameters_[i].copy_(averages_[i]);
    averages_[i].copy_(weights);
  }
}

TensorMap MovingAverage::values() const {
  TensorMap values;
  for (size_t i = 0; i < names_.size(); ++i) values.emplace(names_[i], averages_[i]);
  return values;
}

void MovingAverage::load(const TensorMap& values) {
  for (size_t i = 0; i < names_.size(); ++i) averages_[i].copy_(values.at(names_[i]));
}

}  // namespace transformer
