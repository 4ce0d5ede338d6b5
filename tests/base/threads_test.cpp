#include "transformer/base/threads.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "few_threads.h"
#include "support.h"
#include "transformer/base/process.h"

using namespace transformer;
using transformer::test::with_few_threads;

TEST_CASE("parts that threads share out fill the whole, once, and are of the grain") {
  for (const size_t count : {0u, 1u, 7u, 8u, 9u, 1000u}) {
    for (const int64_t threads : {1, 3, 64}) {
      std::vector<std::atomic<int>> seen(count);
      std::atomic<int> wrong = 0;  // assertions are for one thread
      in_parallel(count, 8, threads, [&](size_t first, size_t last) {
        wrong += first % 8 != 0 || last != std::min(first + 8, count);
        for (size_t i = first; i < last; ++i) ++seen[i];
      });
      CHECK(wrong == 0);
      for (const auto& times : seen) CHECK(times == 1);
    }
  }
}

TEST_CASE("processes that compute together share the cores, and are not all bound to the first") {
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  const int cores = usable_cores();
  const auto threads_with = [](const char* given) {
    ::setenv("OMP_NUM_THREADS", given, /*overwrite=*/1);
    return std::pair(default_threads(), environment_of_shares(2));
  };
  using Environment = std::map<std::string, std::string>;
  const Environment share = {{"OMP_PROC_BIND", "false"}, {"OMP_NUM_THREADS", std::to_string(std::max(1, cores / 2))}};
  for (const auto* nothing : {"", "abc", "0", "-3"}) {
    INFO(nothing);
    CHECK(threads_with(nothing) == std::pair(int64_t{cores}, share));
  }
  for (const auto* three : {"3", " 3", "3,2"}) {
    CHECK(threads_with(three) == std::pair(int64_t{3}, Environment{{"OMP_PROC_BIND", "false"}}));
  }
  CHECK(environment_of_shares(1).empty());
  ::unsetenv("OMP_NUM_THREADS");
  CHECK(environment_of_shares(1) == Environment{{"OMP_NUM_THREADS", std::to_string(cores)}});
  CHECK(environment_of_shares(cores + 5).at("OMP_NUM_THREADS") == "1");
  if (before) ::setenv("OMP_NUM_THREADS", kept.c_str(), /*overwrite=*/1);
}

TEST_CASE("the first part that fails is the one that is told of, however many do") {
  for (const int64_t threads : {1, 4}) {
    for (int trial = 0; trial < 20; ++trial) {
      std::string told;
      try {
        in_parallel(100, 1, threads, [](size_t first, size_t) {
          if (first >= 5) throw std::runtime_error(std::to_string(first));
        });
      } catch (const std::runtime_error& error) {
        told = error.what();
      }
      CHECK(told == "5");
    }
  }
}

TEST_CASE("where there can be few threads, these do all of the work") {
  CHECK(with_few_threads([] {
    std::atomic<int> done = 0;
    in_parallel(1000, 1, 500, [&](size_t, size_t) { ++done; });
    return done == 1000;
  }));
}
