#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace transformer {

/// Lines for standard error, written by a thread of its own, so that nobody waits for who reads them. Where that one is
/// too slow lines are left out, and counted.
class RequestLog {
 public:
  /// Starts the thread.
  RequestLog();
  /// Writes what waits, first.
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  /// A line, without its end. Returns at once.
  void write(std::string line);
  /// Lines so far that nobody will read.
  int64_t left_out() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::string> lines_;
  int64_t left_out_ = 0;
  bool ends_ = false;
  std::jthread thread_;  // last: it must end before what it uses goes
};

}  // namespace transformer
