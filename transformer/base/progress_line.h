#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "transformer/base/log.h"

namespace transformer {

/// How a piece of work stands, for people at a terminal: one line with a bar, speed and time left, which is drawn over
/// again and again. Where nobody sees it, it is nothing at all. Safe to share between threads.
class ProgressLine {
 public:
  /// On `descriptor` where that is a terminal which can draw over a line (TERM is not "dumb"); usually standard error.
  explicit ProgressLine(int descriptor = 2);
  /// Clears the line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether anybody sees it.
  bool live() const { return live_; }
  /// How far the work is; drawn when it is time. Where `what` is another than before, speed and time left count from
  /// here; where it is empty, nothing is done any more, and the line goes.
  void show(const WorkProgress& work);
  /// Takes the line away, until there is something to show again.
  void clear();
  /// Leaves it as it stands, with the line's end behind it.
  void leave();
  /// `write` writes lines of its own to the terminal: above this one.
  void above(const std::function<void()>& write);

 private:
  using Clock = std::chrono::steady_clock;

  void draw();
  void erase();
  /// Time goes on even where nothing is told for long.
  void tick();

  int descriptor_;
  bool live_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false, drawn_ = false;
  std::optional<WorkProgress> work_;
  WorkProgress first_;  // as it was when its clock started
  Clock::time_point started_, latest_;
  std::thread ticking_;
};

/// The line's text, of at most `columns` characters of ASCII (what is not counts by the byte): `work` after `seconds`,
/// which was `first` when they began.
std::string progress_text(const WorkProgress& work, const WorkProgress& first, double seconds, size_t columns);

}  // namespace transformer
