#pragma once

#include <cstdint>

namespace transformer {

/// Learning rates as functions of the step, the first being 1, besides the paper's own (noam_schedule.h).

/// peak_rate · min(step / warmup_steps, sqrt(warmup_steps / step)): linear up to `peak_rate` at step `warmup_steps`,
/// then falling with the square root. It is the paper's schedule with the peak named instead of derived from the width:
/// peak_rate = factor · d_model^-0.5 · warmup_steps^-0.5. Without warm-up (0) the first step has the peak, as with 1.
struct InverseSquareRootSchedule {
  double peak_rate = 7e-4;      // of step `warmup_steps`
  int64_t warmup_steps = 4000;  // of rising rate

  /// The rate of a step, counted from 1.
  double operator()(int64_t step) const;
};

/// rate · min(step / warmup_steps, 1): linear up to `rate` at step `warmup_steps`, and constant from there. Without
/// warm-up (0) it is `rate` from the first step.
struct ConstantSchedule {
  double rate = 7e-4;           // from step `warmup_steps` on
  int64_t warmup_steps = 4000;  // of rising rate

  /// The rate of a step, counted from 1.
  double operator()(int64_t step) const;
};

/// Linear up to `peak_rate` at step `warmup_steps`, then linear down to the last step, `steps`, which still has its
/// share: rate(s) = peak_rate · (steps + 1 - s) / (steps + 1 - warmup_steps). Steps after the last have none. Without
/// warm-up (0) the first step has the peak, as with 1.
struct LinearSchedule {
  double peak_rate = 7e-4;      // of step `warmup_steps`
  int64_t warmup_steps = 4000;  // of rising rate
  int64_t steps = 100000;       // the last one

  /// The rate of a step, counted from 1.
  double operator()(int64_t step) const;
};

}  // namespace transformer
