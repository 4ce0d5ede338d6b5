#include "transformer/serving/waiting_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "transformer/base/counted.h"
#include "transformer/serving/request_error.h"

namespace transformer {

void WaitingRoom::check(size_t lines, size_t of_client, size_t of_all) const {
  const size_t most = std::min(most_, most_of_client_);
  if (lines > most) {
    throw RequestError(413, fmt::format("a request holds {} at most, and this has {}", counted(most, "line"), lines));
  }
  const double seconds = std::ceil(seconds_each_ * static_cast<double>(of_all) / 2);
  const int until_room = static_cast<int>(std::clamp(seconds, 1.0, 60.0));
  if (of_client + lines > most_of_client_) {
    throw RequestError(429, fmt::format("{} lines of yours wait already", of_client), until_room);
  }
  if (of_all + lines > most_) throw RequestError(429, fmt::format("{} lines wait already", of_all), until_room);
}

void WaitingRoom::count_done(size_t lines) {
  const auto now = std::chrono::steady_clock::now();
  const double passed = std::chrono::duration<double>(now - last_done_).count();
  const double seconds = std::min(1.0, passed / static_cast<double>(lines));
  seconds_each_ = last_done_ == Time() ? seconds : 0.95 * seconds_each_ + 0.05 * seconds;
  last_done_ = now;
}

}  // namespace transformer
