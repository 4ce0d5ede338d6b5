#include "transformer/model/fused/parallel.h"

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "catch.h"
#include "for_a_while.h"

namespace {

using transformer::parallel_for;
using transformer::test::Threads;

// The threads that made [0, count), each index of it once.
std::set<std::thread::id> threads_of(int64_t count, int64_t grain) {
  std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[i];
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  for (int64_t i = 0; i < count; ++i) CHECK(visits[i] == 1);
  return threads;
}

}  // namespace

TEST_CASE("a parallel loop runs on as many threads as LibTorch has, where they are worth it") {
  const Threads three(3);
  CHECK(threads_of(100, 1).size() == 3);
  CHECK(threads_of(2, 1).size() == 2);
  CHECK(threads_of(100, 60).size() == 2);
  CHECK(threads_of(100, 100) == std::set{std::this_thread::get_id()});
  CHECK(threads_of(0, 1).empty());
}

TEST_CASE("a parallel loop within another, or where one thread is allowed, runs on its caller's thread") {
  {
    const Threads two(2);
    parallel_for(0, 2, 1, [](int64_t, int64_t) {
      const auto here = std::this_thread::get_id();
      parallel_for(0, 100, 1, [here](int64_t begin, int64_t end) {
        if (begin != 0 || end != 100 || std::this_thread::get_id() != here) throw std::logic_error("shared out again");
      });
    });
  }
  const Threads one(1);
  CHECK(threads_of(100, 1) == std::set{std::this_thread::get_id()});
}

TEST_CASE("what the body of a parallel loop throws is thrown by the loop") {
  const Threads two(2);
  CHECK_THROWS_WITH(parallel_for(0, 2, 1,
                                 [](int64_t begin, int64_t) {
                                   if (begin == 1) throw std::runtime_error("the second half");
                                 }),
                    "the second half");
}
