#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace transformer {

/// A few threads for short pieces of work, done in the order of their coming. What they throw ends the process.
class TaskPool {
 public:
  /// Starts `threads` of them, at least one.
  explicit TaskPool(size_t threads) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  /// Does what was posted, and what that posts, first.
  ~TaskPool() {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    something_.notify_all();
  }
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  /// From any thread. Returns at once.
  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    something_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      something_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // and what it holds, without the lock
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // last: they must end before what they use goes
};

/// Work that takes longer, done one by one on one of a pool's threads at a time, so that the others stay free. It must
/// outlive the pool.
class TaskQueue {
 public:
  /// Of work that `pool`'s threads do.
  explicit TaskQueue(TaskPool& pool) : pool_(pool) {}
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// From any thread. Returns at once.
  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!busy_) pool_.post([this] { run(); });
    busy_ = true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    busy_ = !tasks_.empty();
    if (busy_) pool_.post([this] { run(); });
  }

  TaskPool& pool_;
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
};

}  // namespace transformer
