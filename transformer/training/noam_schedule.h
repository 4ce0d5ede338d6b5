#pragma once

#include <cstdint>

namespace transformer {

/// lrate = factor · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5) (§5.3, eq. 3); the first step is 1.
struct NoamSchedule {
  int64_t d_model = 512;
  int64_t warmup_steps = 4000;
  double factor = 1.0;

  double operator()(int64_t step) const;
};

}  // namespace transformer
