#include "transformer/base/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/process.h"

namespace transformer {

namespace {

// For the thread that starts another to call: that one does `work`, and does not stay where OpenMP has bound this one.
template <class Work>
auto unbound(Work work) {
  return [work = std::move(work), processors = unbound_processors()] {
    run_on(processors);
    work();
  };
}

}  // namespace

std::optional<int64_t> given_threads() {
  const char* given = std::getenv("OMP_NUM_THREADS");
  if (!given) return std::nullopt;
  const auto text = std::string_view(given).substr(std::strspn(given, " \t"));  // as OpenMP reads it
  int64_t threads = 0;
  const auto error = std::from_chars(text.data(), text.data() + text.size(), threads).ec;
  return error == std::errc() && threads > 0 ? std::optional(threads) : std::nullopt;
}

int64_t default_threads() {
  return std::min<int64_t>(given_threads().value_or(usable_cores()), 1024);
}

std::map<std::string, std::string> environment_of_shares(int processes) {
  std::map<std::string, std::string> environment;
  if (processes > 1) environment["OMP_PROC_BIND"] = "false";
  if (!given_threads()) environment["OMP_NUM_THREADS"] = std::to_string(std::max(1, usable_cores() / processes));
  return environment;
}

void start_threads(std::vector<std::jthread>& threads, size_t count,
                   const std::function<std::function<void()>(size_t number)>& task, const std::function<void()>& end) {
  const auto give_up = [&] {
    const size_t started = threads.size();
    end();
    threads.clear();
    return started;
  };
  try {
    for (size_t number = 0; number < count; ++number) threads.emplace_back(unbound(task(number)));
  } catch (const std::system_error& error) {
    throw Failure("threads", fmt::format("{} of {} could be started: {}", give_up(), count, error.what()),
                  "ask for fewer, or raise what limits them (ulimit -u, -v; a container's pids)");
  } catch (...) {
    give_up();
    throw;
  }
}

void in_parallel(size_t count, size_t grain, int64_t threads,
                 const std::function<void(size_t first, size_t last)>& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;  // of what follows
  std::exception_ptr error;
  size_t failed = count;  // the first part that did
  const auto share = [&] {
    for (size_t first; (first = next.fetch_add(grain)) < count;) {
      try {
        work(first, std::min(first + grain, count));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first < failed) error = std::current_exception();
        failed = std::min(failed, first);
        next = count;  // parts before it are under way already
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const auto parts = static_cast<int64_t>((count + grain - 1) / grain);
    try {
      for (int64_t i = 1; i < std::min(threads, parts); ++i) others.emplace_back(unbound(std::cref(share)));
    } catch (const std::system_error&) {  // those that there are do all of it
    }
    share();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace transformer
