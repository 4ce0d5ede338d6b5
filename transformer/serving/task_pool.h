#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "transformer/base/threads.h"

namespace transformer {

/// A few threads for pieces of work, done in the order of their coming, but that none waits for what takes longer than
/// itself. What they throw ends the process.
class TaskPool {
 public:
  /// Starts `threads` of them, at least one, so many more for what is lengthy, at least one, and one for what is quick.
  /// Throws Failure where that cannot be.
  explicit TaskPool(size_t threads, size_t lengthy = 1) {
    start_threads(
        threads_, threads + lengthy + 1,
        [this, lengthy](size_t number) {
          return [this, lengthy, number] { run(number == 0 ? quick_ : number <= lengthy ? lengthy_ : other_); };
        },
        [this] { end(); });
  }
  /// Does what was posted, and what that posts, first.
  ~TaskPool() { end(); }
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  /// From any thread. Returns at once.
  void post(std::function<void()> task) { post_to(other_, std::move(task)); }
  /// The same of work that takes a fraction of a millisecond. A single thread does it: where there are thousands a
  /// second, one that finds the next piece before it sleeps costs less than several that are woken for each in turn, at
  /// the expense of whoever computes.
  void post_quick(std::function<void()> task) { post_to(quick_, std::move(task)); }
  /// The same of work that may take seconds: passes of a model over text.
  void post_lengthy(std::function<void()> task) { post_to(lengthy_, std::move(task)); }

 private:
  struct Lane {
    std::condition_variable something;
    std::deque<std::function<void()>> tasks;
  };

  void post_to(Lane& lane, std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    lane.tasks.push_back(std::move(task));
    ++left_;
    lane.something.notify_one();
  }

  void run(Lane& lane) {
    std::unique_lock lock(mutex_);
    while (true) {
      lane.something.wait(lock, [&] { return !lane.tasks.empty() || (ends_ && left_ == 0); });
      if (lane.tasks.empty()) return;
      auto task = std::move(lane.tasks.front());
      lane.tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // and what it holds, without the lock
      lock.lock();
      if (--left_ == 0 && ends_) wake_all();
    }
  }

  void end() {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    wake_all();
  }

  void wake_all() {
    quick_.something.notify_all();
    other_.something.notify_all();
    lengthy_.something.notify_all();
  }

  std::mutex mutex_;
  Lane quick_, other_, lengthy_;
  size_t left_ = 0;  // tasks of all that are not done
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // last: they must end before what they use goes
};

}  // namespace transformer
