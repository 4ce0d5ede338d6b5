#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace transformer {

// Time as the processes of a run measure it: in seconds, each by its own clock.

/// Never set back, and of no meaning to another process.
using Clock = std::chrono::steady_clock;

/// Seconds that have passed since then.
inline double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

/// At least one: 0 stands for no time limit.
inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000)));
}

}  // namespace transformer
