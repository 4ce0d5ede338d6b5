#include "transformer/report/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

std::string with_minus(std::string number) {
  if (number.starts_with('-')) number.replace(0, 1, "−");
  return number;
}

namespace {

int digits_of(double value) {
  const double size = std::abs(value);
  return size < 100 ? 2 : size < 1000 ? 1 : 0;
}

}  // namespace

std::string fixed_number(double value) {
  return rounded_number(value, digits_of(value));
}

std::string rounded_number(double value, int digits) {
  // A model that diverged, or a file, may have any: some have three hundred digits.
  if (std::isfinite(value) && std::abs(value) >= 1e9) {
    return fmt::format("{}{}", value < 0 ? "−" : "", power_of_ten(std::abs(value)));
  }
  return with_minus(fmt::format("{:.{}f}", value, digits));
}

std::string signed_number(double value) {
  return fmt::format("{}{}", std::signbit(value) ? "" : "+", fixed_number(value));
}

std::string duration_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
  return rounded_number(seconds / 86400, 1) + " days";
}

std::string power_of_ten(double value) {
  auto exponent = static_cast<int64_t>(std::floor(std::log10(value)));
  // Of the smallest numbers the power would be none.
  double mantissa = exponent < -300 ? value * 1e300 / std::pow(10, static_cast<double>(exponent + 300))
                                    : value / std::pow(10, static_cast<double>(exponent));
  if (mantissa >= 9.95) {
    mantissa /= 10;
    ++exponent;
  }
  static const std::array<const char*, 10> superscripts = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = fmt::format("{:.1f}·10{}", mantissa, exponent < 0 ? "⁻" : "");
  for (const char digit : std::to_string(std::abs(exponent))) text += superscripts[static_cast<size_t>(digit - '0')];
  return text;
}

}  // namespace transformer
