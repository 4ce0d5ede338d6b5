#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "catch.h"

namespace transformer::test {

/// Whether `work` says so in a process of its own, which has room for the stacks of a few threads and no more. It is
/// ended where it takes longer than half a minute. Sanitizers take more addresses than can be limited: not asked there.
inline bool with_few_threads(const std::function<bool()>& work) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static_cast<void>(work);
  return true;
#else
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
    const rlimit limit{bytes, bytes};
    bool holds = false;
    try {
      holds = ::setrlimit(RLIMIT_AS, &limit) == 0 && work();
    } catch (...) {
    }
    ::_exit(holds ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
#endif
}

}  // namespace transformer::test
