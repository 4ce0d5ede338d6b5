#include "transformer/serving/request_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace transformer {

RequestLog::RequestLog(int file) : file_(file), thread_([this] { run(); }) {}

void RequestLog::end() {
  {
    const std::lock_guard lock(mutex_);
    end_ = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    something_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void RequestLog::write(std::string line) {
  constexpr size_t most_lines = 10000, most_bytes = size_t{16} << 20;
  line += '\n';
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= most_lines || (bytes_ > 0 && bytes_ + line.size() > most_bytes)) {
    ++left_out_;
    return;
  }
  bytes_ += line.size();
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
    something_.wait(lock, [&] { return end_ || !lines_.empty(); });
    if (lines_.empty()) return;
    std::string text;
    for (; !lines_.empty() && text.size() < 65536; lines_.pop_front()) text += lines_.front();
    bytes_ -= text.size();
    lock.unlock();
    const size_t done = write_all(text);
    lock.lock();
    left_out_ += std::count(text.begin() + static_cast<std::ptrdiff_t>(done), text.end(), '\n');
  }
}

/// Returns how many bytes were written.
size_t RequestLog::write_all(std::string_view text) const {
  size_t done = 0;
  while (done < text.size() && wait_until_writable()) {
    // So much, and no more, is sure to find room in a pipe that can be written.
    const auto part = text.substr(done, PIPE_BUF);
    const ssize_t bytes = ::write(file_, part.data(), part.size());
    if (bytes > 0) done += static_cast<size_t>(bytes);
    if (bytes < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) break;
  }
  return done;
}

/// False: the log has ended meanwhile, and its time is over.
bool RequestLog::wait_until_writable() const {
  constexpr std::chrono::milliseconds until_next_look(100);  // whether the log has ended
  while (true) {
    auto patience = until_next_look;
    {
      const std::lock_guard lock(mutex_);
      const auto now = std::chrono::steady_clock::now();
      if (end_ && now >= *end_) return false;
      if (end_) patience = std::min(patience, std::chrono::ceil<std::chrono::milliseconds>(*end_ - now));
    }
    pollfd waiting{file_, POLLOUT, 0};
    if (::poll(&waiting, 1, static_cast<int>(patience.count())) > 0) return true;  // an error is for the write to tell
  }
}

}  // namespace transformer
