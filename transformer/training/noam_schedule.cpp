#include "transformer/training/noam_schedule.h"

#include <algorithm>
#include <cmath>

namespace transformer {

double NoamSchedule::operator()(int64_t step) const {
  const auto s = static_cast<double>(step);
  return factor * std::pow(d_model, -0.5) * std::min(std::pow(s, -0.5), s * std::pow(warmup_steps, -1.5));
}

}  // namespace transformer
