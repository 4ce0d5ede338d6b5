#pragma once

#include <functional>
#include <string>
#include <utility>

namespace transformer {

/// How a line of a log is meant.
enum class LogLevel { info, warning, error };

/// Where the library's messages to a person go: to whoever made this. Without that they go nowhere.
class Log {
 public:
  using Sink = std::function<void(LogLevel level, const std::string& line)>;

  Log() = default;
  Log(Sink sink) : sink_(std::move(sink)) {}  // NOLINT(google-explicit-constructor): a function is all that a log is

  void info(const std::string& line) const { say(LogLevel::info, line); }
  void warn(const std::string& line) const { say(LogLevel::warning, line); }
  void error(const std::string& line) const { say(LogLevel::error, line); }

 private:
  void say(LogLevel level, const std::string& line) const {
    if (sink_) sink_(level, line);
  }

  Sink sink_;
};

}  // namespace transformer
