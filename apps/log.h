#pragma once

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "apps/messages.h"
#include "transformer/base/log.h"
#include "transformer/base/process.h"
#include "transformer/base/progress_line.h"

namespace transformer {

/// A program's log on standard output: the time and one line, in which names of files and text of theirs can do nothing
/// to a terminal (see one_line). Below it, where standard error is a terminal, how far the work is, until this goes.
/// Whoever reads it may go, as tee does at Ctrl-C: what is under way is stopped in order.
class ProgramLog {
 public:
  explicit ProgramLog(const std::string& name);
  ~ProgramLog() { line_->clear(); }
  ProgramLog(const ProgramLog&) = delete;
  ProgramLog& operator=(const ProgramLog&) = delete;

  /// What the library has to say, as lines of that log, with or without what is drawn below: one process alone may draw
  /// on a terminal.
  Log log(bool progress = true) const;

 private:
  std::shared_ptr<ProgressLine> line_ = std::make_shared<ProgressLine>();
};

inline ProgramLog::ProgramLog(const std::string& name) {
  ignore_broken_pipes();
  class Payload : public spdlog::custom_flag_formatter {
   public:
    void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
      const auto text = one_line({message.payload.data(), message.payload.size()});
      out.append(text.data(), text.data() + text.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Payload>(); }
  };
  class AboveProgress : public spdlog::sinks::sink {
   public:
    explicit AboveProgress(std::shared_ptr<ProgressLine> line) : line_(std::move(line)) {}
    void log(const spdlog::details::log_msg& message) override {
      line_->above([&] {
        output_.log(message);
        output_.flush();
      });
    }
    void flush() override { output_.flush(); }
    void set_pattern(const std::string& pattern) override { output_.set_pattern(pattern); }
    void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
      output_.set_formatter(std::move(formatter));
    }

   private:
    std::shared_ptr<ProgressLine> line_;
    spdlog::sinks::stdout_color_sink_mt output_;
  };
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Payload>('*').set_pattern("%H:%M:%S %*");
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(name, std::make_shared<AboveProgress>(line_)));
  spdlog::set_formatter(std::move(formatter));
  spdlog::flush_on(spdlog::level::info);
}

inline Log ProgramLog::log(bool progress) const {
  const auto say = [](LogLevel level, const std::string& line) {
    const auto as = level == LogLevel::info      ? spdlog::level::info
                    : level == LogLevel::warning ? spdlog::level::warn
                                                 : spdlog::level::err;
    spdlog::log(as, "{}", line);
  };
  if (!progress || !line_->live()) return Log(say);
  return Log(say, [line = line_](const WorkProgress& work) { line->show(work); });
}

}  // namespace transformer
