#include "transformer/training/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace transformer {

double InverseSquareRootSchedule::operator()(int64_t step) const {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(std::max<int64_t>(1, warmup_steps));
  return peak_rate * std::min(s / warmup, std::sqrt(warmup / s));
}

double ConstantSchedule::operator()(int64_t step) const {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(std::max<int64_t>(1, warmup_steps));
  return rate * std::min(s / warmup, 1.0);
}

double LinearSchedule::operator()(int64_t step) const {
  const int64_t warmup = std::max<int64_t>(1, warmup_steps);
  if (step > steps) return 0;
  if (step <= warmup) return peak_rate * static_cast<double>(step) / static_cast<double>(warmup);
  return peak_rate * static_cast<double>(steps + 1 - step) / static_cast<double>(steps + 1 - warmup);
}

}  // namespace transformer
