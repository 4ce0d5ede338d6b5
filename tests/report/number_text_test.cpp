#include "transformer/report/number_text.h"

#include <limits>

#include "support.h"

using namespace transformer;

TEST_CASE("numbers are short") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(-0.0) == "0");
  CHECK(short_number(8192) == "8192");
  CHECK(short_number(16384) == "16.384k");
  CHECK(short_number(16384, 3) == "16.4k");
  CHECK(short_number(-2.5e6) == "-2.5M");
  CHECK(short_number(3e-7) == "3e-07");
  CHECK(short_number(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(grouped_number(0) == "0");
  CHECK(grouped_number(999) == "999");
  CHECK(grouped_number(-1000) == "-1,000");
  CHECK(grouped_number(-100) == "-100");
  CHECK(grouped_number(1234567) == "1,234,567");
}
