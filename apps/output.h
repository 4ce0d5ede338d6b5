#pragma once

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/line_input.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"

namespace transformer {

/// The reader of our output has gone: nothing is wrong, and nothing is left to do.
struct OutputClosed {};

/// Checks what a program writes: a file as check_output_file does; standard output, for "" and "-", only that it leads
/// to no file that is read.
inline void check_output(const std::string& flag, const std::string& file,
                         const std::vector<std::filesystem::path>& inputs) {
  if (is_standard(file)) {
    check_not_read("standard output", "/dev/stdout", inputs);
  } else {
    check_output_file(flag, file, inputs);
  }
}

/// Where a program writes: standard output for "" and "-"; a device, a named pipe or a descriptor (/dev/stdout) as it
/// comes; any other file whole or not at all.
class Output {
 public:
  /// Throws Failure as AtomicFile does.
  explicit Output(const std::string& file) {
    if (!is_standard(file)) file_ = std::make_unique<AtomicFile>(file);
  }

  /// Throws Failure, and OutputClosed where SIGPIPE is ignored and standard output's reader has gone.
  void write(std::string_view text) {
    if (file_) {
      file_->write(text);
      return;
    }
    while (!text.empty()) {
      const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) {  // another program may have left it so that it does not wait by itself
        pollfd output = {STDOUT_FILENO, POLLOUT, 0};
        ::poll(&output, 1, -1);
        continue;
      }
      if (count < 0 && errno == EPIPE) throw OutputClosed();
      if (count < 0) throw Failure("standard output", std::string("cannot be written: ") + std::strerror(errno));
      text.remove_prefix(static_cast<size_t>(count));
    }
  }

  /// Hands over what was written, for readers that wait.
  void flush() {
    if (file_) file_->flush();
  }

  /// A file gets its name.
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::unique_ptr<AtomicFile> file_;
};

/// Hands over what std::cout holds. Throws Failure where it cannot be written, so that nothing more is worked at for
/// it.
inline void flush_standard_output() {
  if (!std::cout.flush()) throw Failure("standard output", "could not be written");
}

}  // namespace transformer
