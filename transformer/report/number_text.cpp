#include "transformer/report/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace transformer {

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  for (const auto& [unit, suffix] : {std::pair{1e9, "G"}, std::pair{1e6, "M"}, std::pair{1e3, "k"}}) {
    if (size < std::max(unit, 1e4) || size >= 1e13) continue;
    return fmt::format("{:.{}g}{}", value / unit, digits, suffix);
  }
  return fmt::format("{:.{}g}", value == 0 ? 0.0 : value, digits);
}

std::string grouped_number(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool behind_digit = i > (value < 0 ? size_t{1} : size_t{0});
    if (behind_digit && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace transformer
