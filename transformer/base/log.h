#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace transformer {

/// How a line of a log is meant.
enum class LogLevel {
  info,     // the work goes as it should
  warning,  // worth knowing, though the work goes on
  error     // what ended the work, or a part of it
};

/// How far a piece of work is.
struct WorkProgress {
  std::string what;                         // is done: "training"; empty: nothing any more
  int64_t done = 0;                         // so many units
  std::optional<int64_t> total = {};        // of so many, where that is known
  std::string unit = {};                    // "steps"
  std::optional<double> share = {};         // of the work that is done, from 0 to 1, where it is known
  std::optional<double> seconds_left = {};  // where whoever works knows better than the time so far
  std::string detail = {};                  // what else is worth knowing: "loss 3.21"
};

/// Where the library's messages to a person go: to whoever made this. Without that they go nowhere.
class Log {
 public:
  /// Takes a line, without its end.
  using Sink = std::function<void(LogLevel level, const std::string& line)>;
  /// Is told how far work is, as often as that changes: it decides how often to show it.
  using Meter = std::function<void(const WorkProgress& work)>;

  /// A log that nobody reads.
  Log() = default;
  /// Lines go to `sink`, progress between them to `meter`. Both are called by any thread that works.
  Log(Sink sink, Meter meter = {})  // NOLINT(google-explicit-constructor): a function is all that a log is
      : sink_(std::move(sink)), meter_(std::move(meter)) {}

  /// How the work goes.
  void info(const std::string& line) const { say(LogLevel::info, line); }
  /// What a person should know, though the work goes on.
  void warn(const std::string& line) const { say(LogLevel::warning, line); }
  /// What went wrong.
  void error(const std::string& line) const { say(LogLevel::error, line); }

  /// Whether anybody wants to see how far work is between lines.
  bool shows_progress() const { return static_cast<bool>(meter_); }
  /// How far work is, for who wants to see it.
  void progress(const WorkProgress& work) const {
    if (meter_) meter_(work);
  }

 private:
  void say(LogLevel level, const std::string& line) const {
    if (sink_) sink_(level, line);
  }

  Sink sink_;
  Meter meter_;
};

}  // namespace transformer
