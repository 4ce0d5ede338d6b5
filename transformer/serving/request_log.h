#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace transformer {

/// Lines for a file, written by a thread of its own, so that nobody waits for who reads them. Where that one is too
/// slow or has left, lines are left out, and counted.
class RequestLog {
 public:
  /// Starts the thread. `file` is a descriptor, blocking or not, that must stay open; 2: standard error.
  explicit RequestLog(int file = 2);
  /// Writes what waits, first, for a second at most.
  ~RequestLog() { end(); }
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  /// A line, without its end. Returns at once.
  void write(std::string line);
  /// Writes what waits, for a second at most, and nothing from then on.
  void end();
  /// Lines so far that nobody will read.
  int64_t left_out() const;

 private:
  void run();
  size_t write_all(std::string_view text) const;
  bool wait_until_writable() const;

  const int file_;
  mutable std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;  // of them
  int64_t left_out_ = 0;
  std::optional<std::chrono::steady_clock::time_point> end_;  // set when it ends: until when it may write
  std::jthread thread_;                                       // last: it must end before what it uses goes
};

}  // namespace transformer
