#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transformer/serving/task_pool.h"
#include "transformer/serving/waiting_lines.h"

namespace transformer {

/// Work on lines that takes longer, done one by one on one of a pool's threads at a time, so that the others stay free.
/// Clients take turns. It must outlive the pool.
class TurnQueue {
 public:
  /// Of work that `pool`'s threads do, while so many lines wait at most (WaitingLines).
  TurnQueue(TaskPool& pool, size_t most, size_t most_of_client) : pool_(pool), waiting_(most, most_of_client) {}
  TurnQueue(const TurnQueue&) = delete;
  TurnQueue& operator=(const TurnQueue&) = delete;

  /// What is done before it is another client's turn.
  struct Turn {
    size_t lines;                // at least one
    std::function<void()> work;  // what it does
  };
  /// By which a request is known.
  struct Ticket {
    std::string client, model;  // whose, and by what
    uint64_t id;                // among all
  };

  /// From any thread. Returns at once. A request's turns are done in their order. Throws what WaitingRoom::check
  /// throws.
  Ticket post(const std::string& client, const std::string& model, std::vector<Turn> turns) {
    size_t lines = 0;
    std::vector<Waiting> waiting;
    for (auto& turn : turns) {
      lines += turn.lines;
      waiting.push_back({model, std::move(turn)});
    }
    const std::lock_guard lock(mutex_);
    waiting_.push(client, ++requests_, std::move(waiting));
    of_models_[model] += lines;
    if (lines > 0 && !std::exchange(busy_, true)) pool_.post([this] { run(); });
    return {client, model, requests_};
  }

  /// Turns that have not begun are forgotten.
  void cancel(const Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    of_models_[ticket.model] -= waiting_.erase(ticket.client, ticket.id);
  }

  /// Lines of a model whose turn has not begun.
  size_t waiting(const std::string& model) const {
    const std::lock_guard lock(mutex_);
    const auto found = of_models_.find(model);
    return found == of_models_.end() ? 0 : found->second;
  }

 private:
  struct Waiting {
    std::string model;
    Turn turn;
  };
  struct Lines {
    size_t operator()(const Waiting& waiting) const { return waiting.turn.lines; }
  };

  void run() {
    std::unique_lock lock(mutex_);
    if (!waiting_.empty()) {
      auto next = waiting_.pop();
      const size_t lines = next.turn.lines;
      of_models_[next.model] -= lines;
      lock.unlock();
      next.turn.work();
      next.turn.work = nullptr;
      lock.lock();
      waiting_.count_done(lines);
    }
    busy_ = !waiting_.empty();
    if (busy_) pool_.post([this] { run(); });
  }

  TaskPool& pool_;
  mutable std::mutex mutex_;  // of what follows
  WaitingLines<Waiting, Lines> waiting_;
  std::map<std::string, size_t> of_models_;  // lines that wait
  uint64_t requests_ = 0;
  bool busy_ = false;
};

}  // namespace transformer
