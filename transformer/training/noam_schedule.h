#pragma once

#include <cstdint>

namespace transformer {

/// lrate = factor · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5) (§5.3, eq. 3); the first step is 1.
struct NoamSchedule {
  int64_t d_model = 512;        // the wider, the lower
  int64_t warmup_steps = 4000;  // of rising rate; at least 1
  double factor = 1.0;          // of all rates

  /// The rate of a step, counted from 1.
  double operator()(int64_t step) const;
};

}  // namespace transformer
