#include "transformer/training/learning_rate.h"

#include <cmath>
#include <vector>

#include "support.h"
#include "transformer/training/noam_schedule.h"

using namespace transformer;
using namespace transformer::test;

namespace {

std::vector<double> numbers_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<double> numbers;
  for (double number = 0; in >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace

TEST_CASE("the inverse square root rises to its peak and falls with the square root") {
  // 5e-4 · 10000^0.5 · step^-0.5 after 10000 steps of warm-up from 0, computed by hand.
  const InverseSquareRootSchedule rate{.peak_rate = 5e-4, .warmup_steps = 10000};
  CHECK(rate(1) == Approx(5e-8).epsilon(1e-12));
  CHECK(rate(5000) == Approx(2.5e-4).epsilon(1e-12));
  CHECK(rate(10000) == Approx(5e-4).epsilon(1e-12));
  CHECK(rate(40000) == Approx(2.5e-4).epsilon(1e-12));
  CHECK(rate(1000000) == Approx(5e-5).epsilon(1e-12));
  CHECK(rate(10000) > rate(9999));
  CHECK(rate(10000) > rate(10001));
}

TEST_CASE("the constant rate is reached at the last warm-up step and kept") {
  const ConstantSchedule rate{.rate = 3e-4, .warmup_steps = 300};
  CHECK(rate(1) == Approx(1e-6).epsilon(1e-12));
  CHECK(rate(150) == Approx(1.5e-4).epsilon(1e-12));
  CHECK(rate(299) < 3e-4);
  CHECK(rate(300) == 3e-4);
  CHECK(rate(1000000000) == 3e-4);
}

TEST_CASE("without warm-up the first step has the full rate") {
  const InverseSquareRootSchedule falling{.peak_rate = 0.01, .warmup_steps = 0};
  CHECK(falling(1) == 0.01);
  CHECK(falling(4) == Approx(0.005).epsilon(1e-12));
  const ConstantSchedule constant{.rate = 0.01, .warmup_steps = 0};
  CHECK(constant(1) == 0.01);
  CHECK(constant(2) == 0.01);
}

TEST_CASE("the linear schedule falls to its last share at the last step") {
  const LinearSchedule rate{.peak_rate = 0.8, .warmup_steps = 4, .steps = 11};
  CHECK(rate(1) == Approx(0.2).epsilon(1e-12));
  CHECK(rate(4) == Approx(0.8).epsilon(1e-12));
  CHECK(rate(5) == Approx(0.7).epsilon(1e-12));
  CHECK(rate(11) == Approx(0.1).epsilon(1e-12));
  CHECK(rate(12) == 0);
  CHECK(rate(1000) == 0);
  // Also where the last step comes before the peak.
  const LinearSchedule cut{.peak_rate = 1, .warmup_steps = 10, .steps = 5};
  CHECK(cut(5) == Approx(0.5).epsilon(1e-12));
  CHECK(cut(6) == 0);
}

TEST_CASE("Noam's schedule is the inverse square root with its peak derived from the width") {
  const auto [d_model, warmup, factor] =
      GENERATE(table<int64_t, int64_t, double>({{512, 4000, 1.0}, {1024, 4000, 1.0}, {256, 1000, 2.5}, {7, 1, 0.1}}));
  const NoamSchedule noam{.d_model = d_model, .warmup_steps = warmup, .factor = factor};
  const double peak = factor / std::sqrt(static_cast<double>(d_model)) / std::sqrt(static_cast<double>(warmup));
  const InverseSquareRootSchedule rate{.peak_rate = peak, .warmup_steps = warmup};
  for (const int64_t step : {1, 2, 999, 1000, 1001, 3999, 4000, 4001, 100000}) {
    INFO(step);
    CHECK(rate(step) == Approx(noam(step)).epsilon(1e-12));
  }
}

TEST_CASE("the schedules give the rates of PyTorch's schedulers") {
  TemporaryDirectory directory;
  const int64_t warmup = GENERATE(1, 2, 10);
  run_reference("learning_rates.py",
                fmt::format("{} '{}' '{}'", warmup, (directory / "falling").string(), (directory / "flat").string()) +
                    fmt::format(" '{}'", (directory / "linear").string()));
  const auto falling = numbers_of(directory / "falling"), flat = numbers_of(directory / "flat");
  const auto linear = numbers_of(directory / "linear");
  REQUIRE(falling.size() == 50);
  REQUIRE(flat.size() == 50);
  REQUIRE(linear.size() == 50);
  const InverseSquareRootSchedule falling_rate{.peak_rate = 0.003, .warmup_steps = warmup};
  const ConstantSchedule flat_rate{.rate = 0.003, .warmup_steps = warmup};
  const LinearSchedule linear_rate{.peak_rate = 0.003, .warmup_steps = warmup, .steps = 40};
  for (int64_t step = 1; step <= 50; ++step) {
    INFO("step " << step);
    CHECK(linear_rate(step) == Approx(linear[step - 1]).epsilon(1e-10).margin(1e-16));
    CHECK(falling_rate(step) == Approx(falling[step - 1]).epsilon(1e-10));
    CHECK(flat_rate(step) == Approx(flat[step - 1]).epsilon(1e-10));
  }
}
