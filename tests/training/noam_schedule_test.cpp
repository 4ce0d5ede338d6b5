#include "transformer/training/noam_schedule.h"

#include "support.h"

using transformer::NoamSchedule;

TEST_CASE("the rate rises linearly to its peak at the last warm-up step and falls with the square root") {
  const NoamSchedule rate{.d_model = 512, .warmup_steps = 4000};
  // 512^-0.5 = 0.044194173824159216; 4000^-1.5 = 3.952847075210474e-06
  CHECK(rate(1) == Approx(0.044194173824159216 * 3.952847075210474e-06).epsilon(1e-12));
  CHECK(rate(2000) == Approx(2000 * rate(1)).epsilon(1e-12));
  CHECK(rate(4000) == Approx(6.987712429686843e-04).epsilon(1e-12));
  CHECK(rate(16000) == Approx(rate(4000) / 2).epsilon(1e-12));
  CHECK(rate(4000) > rate(3999));
  CHECK(rate(4000) > rate(4001));
}

TEST_CASE("width and factor scale the rate") {
  const NoamSchedule base{.d_model = 512, .warmup_steps = 4000};
  const NoamSchedule wide{.d_model = 2048, .warmup_steps = 4000};
  const NoamSchedule doubled{.d_model = 512, .warmup_steps = 4000, .factor = 2};
  CHECK(wide(100) == Approx(base(100) / 2).epsilon(1e-12));
  CHECK(doubled(100) == Approx(base(100) * 2).epsilon(1e-12));
}
