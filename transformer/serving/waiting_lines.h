#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transformer/serving/fair_queue.h"

namespace transformer {

/// How many lines may wait, and how soon there is room for more.
class WaitingRoom {
 public:
  /// So many lines of all clients, and of one.
  WaitingRoom(size_t most, size_t most_of_client) : most_(most), most_of_client_(most_of_client) {}

  /// Whether so many more may come, where others wait already, of the same client and of all. Throws RequestError: 413
  /// for more lines than may ever wait, 429 with a time to come back for more than may now.
  void check(size_t lines, size_t of_client, size_t of_all) const;
  /// Some more lines are done: the pace of that tells when there is room.
  void count_done(size_t lines);

 private:
  using Time = std::chrono::steady_clock::time_point;
  const size_t most_, most_of_client_;
  double seconds_each_ = 0;  // between lines that are done, a running mean
  Time last_done_;
};

/// Lines that wait for whoever works on them, given out in turns (FairQueue), and no more of them than may wait. An
/// item is of as many lines as `Size` says. One thread at a time.
template <class Item, class Size = One>
class WaitingLines {
 public:
  /// How many lines of all clients may wait, and of one.
  WaitingLines(size_t most, size_t most_of_client) : room_(most, most_of_client) {}

  /// As FairQueue's. Throws what WaitingRoom::check throws.
  void push(const std::string& client, uint64_t request, std::vector<Item> items) {
    size_t lines = 0;
    for (const auto& item : items) lines += Size()(item);
    check(client, lines);
    push_admitted(client, request, std::move(items));
  }
  /// The same of lines that were let in before, whatever waits by now.
  void push_admitted(const std::string& client, uint64_t request, std::vector<Item> items) {
    queue_.push(client, request, std::move(items));
  }
  /// Throws what WaitingRoom::check throws of so many lines of the client's.
  void check(const std::string& client, size_t lines) const {
    room_.check(lines, queue_.size_of(client), queue_.size());
  }
  /// The next; there must be one.
  Item pop() { return queue_.pop(); }
  /// The next that may go now, as FairQueue has it.
  template <class May>
  std::optional<Item> pop_first(const May& may) {
    return queue_.pop_first(may);
  }
  /// Forgets what waits of a request; returns how many lines that were.
  size_t erase(const std::string& client, uint64_t request) { return queue_.erase(client, request); }
  /// Lines that were given out are done.
  void count_done(size_t lines) { room_.count_done(lines); }

  /// Of all clients.
  size_t size() const { return queue_.size(); }
  /// Whether none waits.
  bool empty() const { return queue_.empty(); }

 private:
  WaitingRoom room_;
  FairQueue<Item, Size> queue_;
};

}  // namespace transformer
