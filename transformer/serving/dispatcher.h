#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "transformer/inference/engine.h"
#include "transformer/serving/waiting_lines.h"

namespace transformer {

/// Hands the sentences of many clients to an engine, in turns (WaitingLines), as its workers come to need them: what is
/// handed over waits no longer than for a place in a batch, and all else can still be overtaken by a client with less.
/// Of long sentences, which take a worker long before it decodes them, fewer are handed over at a time; those that wait
/// for that hold up no others.
class Dispatcher {
 public:
  /// How much may wait before more is refused.
  struct Limits {
    size_t waiting = 20000;            // sentences of all clients
    size_t waiting_of_client = 10000;  // sentences of one client
    /// That a sentence waits for others to begin with, in seconds, while the engine has none; a full batch begins at
    /// once.
    double batch_wait = 0;
  };
  /// Starts a thread of its own where sentences wait for each other. Who else holds the engine must have let go of it
  /// before this goes: its workers call what is here until they end. `started` is told how many sentences the engine
  /// has whenever it is given one more.
  Dispatcher(std::shared_ptr<Engine> engine, const Limits& limits, std::function<void(size_t running)> started = {});
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  class Ticket;
  /// Returns at once. `done` is called as Engine's is, but may be called for several sentences at a time. Throws
  /// what WaitingRoom::check throws.
  std::shared_ptr<Ticket> submit(const std::string& client, std::vector<DecodingRequest> requests, Engine::Done done);
  /// None of its sentences is decoded any further. `done` may be at its last call when this returns.
  void cancel(Ticket& ticket);
  /// From now on no sentence waits for others to begin with.
  void drain();

  /// Sentences that are not handed over yet.
  size_t waiting() const;
  /// Sentences that the engine has.
  size_t running() const;

 private:
  struct Waiting {
    std::shared_ptr<Ticket> ticket;
    size_t index;
  };
  using Clock = std::chrono::steady_clock;
  void pump();
  bool held() const;
  void release_held(const std::stop_token& stop);
  void hand_over(const Waiting& next);
  Engine::Done settle(Ticket& ticket, size_t index, size_t decoded = 1);
  void count_settled(size_t sentences, size_t pieces, size_t done = 0);

  const Limits limits_;
  const size_t batch_, most_running_, most_pieces_;
  const std::function<void(size_t)> started_;

  mutable std::mutex mutex_;  // of what follows
  WaitingLines<Waiting> queue_;
  std::condition_variable_any something_waits_;
  Clock::time_point begin_;               // when what waits begins, whoever else has come
  size_t running_ = 0, long_pieces_ = 0;  // sentences that the engine has, and the long ones' word pieces
  uint64_t tickets_ = 0;
  bool draining_ = false;

  const std::shared_ptr<Engine> engine_;  // its workers must end before what they call goes
  std::jthread releaser_;                 // last, as it calls everything
};

}  // namespace transformer
