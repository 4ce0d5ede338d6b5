#pragma once

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "apps/messages.h"
#include "transformer/base/log.h"

namespace transformer {

/// A program's log on standard output: the time and one line, in which names of files and text of theirs can do nothing
/// to a terminal (see one_line).
inline void start_log(const std::string& name) {
  class Payload : public spdlog::custom_flag_formatter {
   public:
    void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
      const auto text = one_line({message.payload.data(), message.payload.size()});
      out.append(text.data(), text.data() + text.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Payload>(); }
  };
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Payload>('*').set_pattern("%H:%M:%S %*");
  spdlog::set_default_logger(spdlog::stdout_color_mt(name));
  spdlog::set_formatter(std::move(formatter));
  spdlog::flush_on(spdlog::level::info);
}

/// What the library has to say, as lines of that log.
inline Log program_log() {
  return Log([](LogLevel level, const std::string& line) {
    const auto as = level == LogLevel::info      ? spdlog::level::info
                    : level == LogLevel::warning ? spdlog::level::warn
                                                 : spdlog::level::err;
    spdlog::log(as, "{}", line);
  });
}

}  // namespace transformer
