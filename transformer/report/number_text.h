#pragma once

#include <cstdint>
#include <string>

namespace transformer {

/// 1234 -> "1234", 20000 -> "20k", 1.5e6 -> "1.5M", 0.25 -> "0.25", 3e-7 -> "3e-07"; at most `digits` significant ones.
std::string short_number(double value, int digits = 6);

/// 1234567 -> "1,234,567".
std::string grouped_number(int64_t value);

/// With a minus sign as wide as a plus: "-1" -> "−1".
std::string with_minus(std::string number);

/// Two digits behind the point, one from 100 and none from 1000 on; from 1e9 on a power of ten: 5 -> "5.00",
/// -123.4 -> "−123.4", 3.3e18 -> "3.3·10¹⁸".
std::string fixed_number(double value);
/// So many digits behind the point up to 1e9.
std::string rounded_number(double value, int digits);
/// The same with its sign: 0.5 -> "+0.50".
std::string signed_number(double value);

/// In the largest unit that leaves a number above 1 or 2: "5.0 s", "90 min", "3.5 h", "2.5 days".
std::string duration_text(double seconds);

/// A positive value as a mantissa and a power of ten: "3.3·10¹⁸".
std::string power_of_ten(double value);

}  // namespace transformer
