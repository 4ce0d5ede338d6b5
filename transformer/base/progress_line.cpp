#include "transformer/base/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "transformer/base/clock_text.h"

namespace transformer {

namespace {

constexpr std::chrono::milliseconds between_draws{200}, between_ticks{500};
constexpr size_t least_bar = 10, most_bar = 40;
constexpr const char* erased = "\r\x1b[K";

bool is_live(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) != 0 && terminal && *terminal && std::string_view(terminal) != "dumb";
}

size_t columns_of(int descriptor) {
  winsize size{};
  // A terminal that does not say has as many as there have always been.
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// A terminal that has gone is no reason to fail.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

std::string progress_text(const WorkProgress& work, const WorkProgress& first, double seconds, size_t columns) {
  // Drawing a character in the last column makes some terminals begin another line.
  const size_t most = columns > 1 ? columns - 1 : 0;
  std::string rest;
  if (work.done > 0 || work.total) {
    rest += work.total ? fmt::format("  {}/{} {}", work.done, *work.total, work.unit)
                       : fmt::format("  {} {}", work.done, work.unit);
  }
  const auto here = static_cast<double>(work.done - first.done);
  if (here > 0 && seconds >= 0.5) {
    const double rate = here / seconds;
    rest += fmt::format(", {:.{}f} {}/s", rate, rate < 1 ? 2 : rate < 10 ? 1 : 0, work.unit);
  }
  auto left = work.seconds_left;
  const double share = std::clamp(work.share.value_or(0), 0.0, 1.0), share_here = share - first.share.value_or(0);
  // What a thousandth of the work has taken says little of the rest.
  if (work.share && !left && share_here > 1e-3 && seconds >= 0.5) left = seconds * (1 - share) / share_here;
  rest += left && share < 1 ? fmt::format(", {} left", clock_text(*left))
                            : fmt::format("{} {}", rest.empty() ? " " : ",", clock_text(seconds));

  std::string text = work.what;
  if (work.share) {
    const std::string percent = fmt::format(" {:3.0f} %", share * 100);
    const size_t taken = text.size() + percent.size() + rest.size() + 3;  // a space and the brackets
    const size_t room = most > taken ? most - taken : 0, detail = work.detail.empty() ? 0 : work.detail.size() + 2;
    if (room >= least_bar) {
      // Details have what a short bar leaves, and a long bar what they leave.
      const size_t width = std::clamp(room > detail ? room - detail : 0, least_bar, most_bar);
      const auto full = static_cast<size_t>(share * static_cast<double>(width));
      text += fmt::format(" [{}{}]", std::string(full, '#'), std::string(width - full, '.'));
    }
    text += percent;
  }
  text += rest;
  // Those that fit: half a number would be another one.
  for (std::string_view detail = work.detail; !detail.empty();) {
    const auto part = detail.substr(0, detail.find(", "));
    if (text.size() + 2 + part.size() > most) break;
    text += fmt::format(", {}", part);
    detail.remove_prefix(std::min(detail.size(), part.size() + 2));
  }
  return text.substr(0, most);
}

ProgressLine::ProgressLine(int descriptor) : descriptor_(descriptor), live_(is_live(descriptor)) {}

ProgressLine::~ProgressLine() {
  clear();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (ticking_.joinable()) ticking_.join();
}

void ProgressLine::show(const WorkProgress& work) {
  if (!live_) return;
  if (work.what.empty()) return clear();
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const bool begins = !work_ || work_->what != work.what;
  if (begins) {
    first_ = work;
    started_ = now;
  }
  work_ = work;
  if (begins || now - latest_ >= between_draws) draw();
  if (ticking_.joinable()) return;
  try {
    ticking_ = std::thread([this] { tick(); });
  } catch (const std::system_error&) {  // none can be started: it moves when work is told of
  }
}

void ProgressLine::clear() {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  erase();
  work_.reset();
}

void ProgressLine::leave() {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  if (work_) draw();
  if (drawn_) write_all(descriptor_, "\n");
  drawn_ = false;
  work_.reset();
}

void ProgressLine::above(const std::function<void()>& write) {
  if (!live_) return write();
  const std::lock_guard lock(mutex_);
  erase();
  write();
  if (work_) draw();
}

void ProgressLine::draw() {
  latest_ = Clock::now();
  const double seconds = std::chrono::duration<double>(latest_ - started_).count();
  write_all(descriptor_, fmt::format("\r{}\x1b[K", progress_text(*work_, first_, seconds, columns_of(descriptor_))));
  drawn_ = true;
}

void ProgressLine::erase() {
  if (drawn_) write_all(descriptor_, erased);
  drawn_ = false;
}

void ProgressLine::tick() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, between_ticks, [this] { return ended_; })) {
    if (work_ && Clock::now() - latest_ >= between_ticks) draw();
  }
}

}  // namespace transformer
