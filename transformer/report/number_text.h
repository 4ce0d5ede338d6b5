#pragma once

#include <cstdint>
#include <string>

namespace transformer {

/// 1234 -> "1234", 20000 -> "20k", 1.5e6 -> "1.5M", 0.25 -> "0.25", 3e-7 -> "3e-07"; at most `digits` significant ones.
std::string short_number(double value, int digits = 6);

/// 1234567 -> "1,234,567".
std::string grouped_number(int64_t value);

}  // namespace transformer
