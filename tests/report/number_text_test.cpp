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

TEST_CASE("numbers of a report have as many digits as they need") {
  CHECK(fixed_number(5) == "5.00");
  CHECK(fixed_number(-99.994) == "−99.99");
  CHECK(fixed_number(123.44) == "123.4");
  CHECK(fixed_number(-1234.4) == "−1234");
  CHECK(signed_number(0.5) == "+0.50");
  CHECK(signed_number(-0.5) == "−0.50");
  CHECK(signed_number(250) == "+250.0");
  CHECK(rounded_number(12.36, 1) == "12.4");
  CHECK(with_minus("-1-1") == "−1-1");
  CHECK(with_minus("1") == "1");
}

TEST_CASE("numbers of models that diverged have no more digits than others") {
  CHECK(fixed_number(999'999'999) == "999999999");
  CHECK(fixed_number(1e9) == "1.0·10⁹");
  CHECK(rounded_number(1e9, 2) == "1.0·10⁹");
  CHECK(fixed_number(-3.3e300) == "−3.3·10³⁰⁰");
  CHECK(signed_number(3e12) == "+3.0·10¹²");
  CHECK(signed_number(-3e12) == "−3.0·10¹²");
  CHECK(fixed_number(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(duration_text(86400e200) == "1.0·10²⁰⁰ days");
}

TEST_CASE("durations are in the unit that suits them") {
  CHECK(duration_text(5) == "5.0 s");
  CHECK(duration_text(119) == "119 s");
  CHECK(duration_text(120) == "2 min");
  CHECK(duration_text(7199) == "120 min");
  CHECK(duration_text(7200) == "2.0 h");
  CHECK(duration_text(47.5 * 3600) == "47.5 h");
  CHECK(duration_text(60 * 3600) == "2.5 days");
}

TEST_CASE("powers of ten have a mantissa from 1 to below 10") {
  CHECK(power_of_ten(3.3e18) == "3.3·10¹⁸");
  CHECK(power_of_ten(1) == "1.0·10⁰");
  CHECK(power_of_ten(9.96e5) == "1.0·10⁶");
  CHECK(power_of_ten(9.94e5) == "9.9·10⁵");
  CHECK(power_of_ten(4.7e-23) == "4.7·10⁻²³");
  CHECK(power_of_ten(1.25e-305) == "1.2·10⁻³⁰⁵");
  CHECK(power_of_ten(5e-324) == "4.9·10⁻³²⁴");  // the least that there is
  CHECK(power_of_ten(1.797e308) == "1.8·10³⁰⁸");
}
