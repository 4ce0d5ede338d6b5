#include "transformer/serving/request_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "catch.h"

using namespace transformer;

namespace {

constexpr std::chrono::seconds patience(60);

class Pipe {
 public:
  explicit Pipe(int flags = 0) { REQUIRE(::pipe2(ends_.data(), O_CLOEXEC | flags) == 0); }
  ~Pipe() {
    close_reader();
    ::close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int writer() const { return ends_[1]; }
  void close_reader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  /// What comes until so many lines have, or nothing more within a while.
  std::string read(int64_t lines) const {
    std::string text;
    pollfd waiting{ends_[0], POLLIN, 0};
    char part[4096];
    while (std::count(text.begin(), text.end(), '\n') < lines && ::poll(&waiting, 1, 30'000) == 1) {
      const auto bytes = ::read(ends_[0], part, sizeof part);
      if (bytes > 0) text.append(part, static_cast<size_t>(bytes));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{};
};

constexpr int64_t many = 3000;  // lines, several times what a pipe holds

std::string line(int64_t number) {
  return std::to_string(number) + std::string(100, '.');
}

}  // namespace

TEST_CASE("every line of a log comes to who reads it, whether its file blocks or not") {
  for (const int flags : {0, O_NONBLOCK}) {
    INFO(flags);
    const Pipe pipe(flags);
    RequestLog log(pipe.writer());
    std::string expected;
    for (int64_t i = 0; i < many; ++i) {
      log.write(line(i));
      expected += line(i) + "\n";
    }
    CHECK(pipe.read(many) == expected);
    CHECK(log.left_out() == 0);
  }
}

TEST_CASE("a log that nobody reads ends all the same") {
  const Pipe pipe;
  auto log = std::make_unique<RequestLog>(pipe.writer());
  for (int64_t i = 0; i < many; ++i) log->write(line(i));
  auto ended = std::async(std::launch::async, [&] { log.reset(); });
  const bool in_time = ended.wait_for(patience) == std::future_status::ready;
  CHECK(in_time);
  if (!in_time) pipe.read(many);
}

TEST_CASE("a log that nobody reads takes up no more memory for long lines") {
  const Pipe pipe;
  RequestLog log(pipe.writer());
  for (int i = 0; i < 40; ++i) log.write(std::string(size_t{1} << 20, '.'));
  CHECK(log.left_out() >= 40 - 16 - 1);  // one is being written
  CHECK(log.left_out() <= 40 - 15);
  log.write(line(0));
  CHECK(log.left_out() <= 40 - 15);
}

TEST_CASE("lines of a log whose reader has left are counted") {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.close_reader();
  RequestLog log(pipe.writer());
  for (int64_t i = 0; i < 10; ++i) log.write(line(i));
  const auto end = std::chrono::steady_clock::now() + patience;
  while (log.left_out() < 10 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  CHECK(log.left_out() == 10);
  std::signal(SIGPIPE, before);
}
