#include "transformer/base/clock_text.h"

#include <fmt/format.h>

#include <cstdint>

namespace transformer {

std::string clock_text(double seconds) {
  constexpr double most = 1e9;  // some 32 years
  const auto whole = seconds > 0 ? static_cast<int64_t>((seconds < most ? seconds : most) + 0.5) : int64_t{0};
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace transformer
