#include "transformer/base/clock_text.h"

#include <cmath>
#include <limits>

#include "support.h"

using namespace transformer;

TEST_CASE("times are told as clocks show them, whatever the number") {
  CHECK(clock_text(0) == "0:00");
  CHECK(clock_text(59.4) == "0:59");
  CHECK(clock_text(59.5) == "1:00");
  CHECK(clock_text(3599.5) == "1:00:00");
  CHECK(clock_text(3723) == "1:02:03");
  CHECK(clock_text(360000) == "100:00:00");
  CHECK(clock_text(-5) == "0:00");
  CHECK(clock_text(std::nan("")) == "0:00");
  CHECK(clock_text(std::numeric_limits<double>::infinity()) == clock_text(1e9));
}
