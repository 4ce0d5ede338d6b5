#include "transformer/serving/request_log.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace transformer {

RequestLog::RequestLog() : thread_([this] { run(); }) {}

RequestLog::~RequestLog() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  something_.notify_all();
}

void RequestLog::write(std::string line) {
  constexpr size_t most_lines = 10000;
  line += '\n';
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= most_lines) {
    ++left_out_;
    return;
  }
  lines_.push_back(std::move(line));
  something_.notify_one();
}

int64_t RequestLog::left_out() const {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

void RequestLog::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    something_.wait(lock, [&] { return ends_ || !lines_.empty(); });
    if (lines_.empty()) return;
    std::string text;
    for (; !lines_.empty() && text.size() < 65536; lines_.pop_front()) text += lines_.front();
    lock.unlock();
    for (size_t done = 0; done < text.size();) {
      const ssize_t bytes = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
      if (bytes < 0 && errno != EINTR) break;  // nobody reads them any more
      if (bytes > 0) done += static_cast<size_t>(bytes);
    }
    lock.lock();
  }
}

}  // namespace transformer
