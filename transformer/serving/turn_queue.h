#pragma once

#include <algorithm>
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

/// Word pieces, of sources and translations together, that a model passes over before it is another client's turn.
inline constexpr size_t pieces_of_turn = 2048;

/// Work on lines that takes longer, done on so many of a pool's threads at a time, so that the others stay free.
/// Clients take turns, and none has all these threads at once where they are several. It must outlive the pool.
class TurnQueue {
 public:
  /// Of work that `pool`'s threads for what is lengthy do, while so many lines wait at most (WaitingLines).
  TurnQueue(TaskPool& pool, size_t most, size_t most_of_client, size_t at_once = 1)
      : pool_(pool), at_once_(at_once), waiting_(most, most_of_client) {}
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

  /// From any thread. Returns at once. A request's turns begin in their order. Throws what WaitingRoom::check throws.
  Ticket post(const std::string& client, const std::string& model, std::vector<Turn> turns) {
    return post(client, model, std::move(turns), &Lines::push);
  }
  /// The same of lines for which `check` said that they may come, whatever waits by now.
  Ticket post_admitted(const std::string& client, const std::string& model, std::vector<Turn> turns) {
    return post(client, model, std::move(turns), &Lines::push_admitted);
  }
  /// Whether so many more lines of the client's may come. Throws what WaitingRoom::check throws.
  void check(const std::string& client, size_t lines) const {
    const std::lock_guard lock(mutex_);
    waiting_.check(client, lines);
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
    std::string client, model;
    Turn turn;
  };
  struct LinesOf {
    size_t operator()(const Waiting& waiting) const { return waiting.turn.lines; }
  };
  using Lines = WaitingLines<Waiting, LinesOf>;

  template <class Push>
  Ticket post(const std::string& client, const std::string& model, std::vector<Turn> turns, Push push) {
    size_t lines = 0;
    std::vector<Waiting> waiting;
    for (auto& turn : turns) {
      lines += turn.lines;
      waiting.push_back({client, model, std::move(turn)});
    }
    const std::lock_guard lock(mutex_);
    (waiting_.*push)(client, ++requests_, std::move(waiting));
    of_models_[model] += lines;
    for (size_t i = 0; i < turns.size() && runners_ < at_once_; ++i) {
      ++runners_;
      pool_.post_lengthy([this] { run(); });
    }
    return {client, model, requests_};
  }

  void run() {
    std::unique_lock lock(mutex_);
    const size_t most_of_client = std::max<size_t>(1, at_once_ - 1);
    auto next = waiting_.pop_first([&](const Waiting& one) {
      const auto running = of_clients_.find(one.client);
      return running == of_clients_.end() || running->second < most_of_client;
    });
    if (!next) {  // whoever is at a client's turn goes on with what it has left
      --runners_;
      return;
    }
    const size_t lines = next->turn.lines;
    of_models_[next->model] -= lines;
    ++of_clients_[next->client];
    lock.unlock();
    next->turn.work();
    next->turn.work = nullptr;
    lock.lock();
    waiting_.count_done(lines);
    if (const auto own = of_clients_.find(next->client); --own->second == 0) of_clients_.erase(own);
    pool_.post_lengthy([this] { run(); });
  }

  TaskPool& pool_;
  const size_t at_once_;
  mutable std::mutex mutex_;  // of what follows
  Lines waiting_;
  std::map<std::string, size_t> of_models_, of_clients_;  // lines that wait; turns that are being done
  uint64_t requests_ = 0;
  size_t runners_ = 0;  // that are on the pool
};

}  // namespace transformer
