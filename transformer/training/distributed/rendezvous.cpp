#include "transformer/training/distributed/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/training/distributed/clock.h"
#include "transformer/training/distributed/message_of.h"
#include "transformer/training/distributed/rank_state.h"

namespace transformer {

namespace {

constexpr const char* ready_key = "ready";  // names of those that came, once all have

// Where rank 0 says which part of the store is this attempt's.
std::string leader_key(const Launch& launch) {
  return fmt::format("leader/{}", launch.world_size);
}

// Where a rank says its name within that part.
std::string hello_key(int rank) {
  return fmt::format("hello/{}", rank);
}

std::string unique_name() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 4; ++i) name += fmt::format("{:08x}", random());
  return name;
}

StorePointer part_of(const StorePointer& store, const std::string& name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

// Waiting for others: briefly at first, and longer and longer, so that many ranks do not keep the store busy.
class Patience {
 public:
  explicit Patience(double timeout) : timeout_(timeout) {}

  bool over() const { return seconds_since(begun_) > timeout_; }
  void pause() {
    std::this_thread::sleep_for(milliseconds(pause_));
    pause_ = std::min(1.5 * pause_, 0.5);
  }
  void renew() { *this = Patience(timeout_); }

 private:
  double timeout_, pause_ = 0.01;
  Clock::time_point begun_ = Clock::now();
};

// The ranks from `first` on that have not set their key.
template <class Key>
std::vector<int> missing_ranks(const StorePointer& store, const Launch& launch, int first, Key key) {
  std::vector<int> missing;
  for (int rank = first; rank < launch.world_size; ++rank) {
    if (!store->check({key(rank)})) missing.push_back(rank);
  }
  return missing;
}

Failure did_not_come(const std::vector<int>& missing, const Launch& launch, double timeout) {
  return Failure(fmt::format("rank {}", launch.rank),
                 fmt::format("{} {} of {} did not come to {}:{} within {:g} s", missing.size() == 1 ? "rank" : "ranks",
                             fmt::join(missing, ", "), launch.world_size, launch.address, launch.port, timeout));
}

// What is wrong where rank 0 was told another number of ranks: one of the two would wait for some that nobody starts.
std::optional<Error> other_world_size(const RankState& of_rank_0, const Launch& launch) {
  if (of_rank_0.world_size == 0 || of_rank_0.world_size == launch.world_size) return std::nullopt;
  return Error("WORLD_SIZE",
               fmt::format("is {} on rank {}, but {} on rank 0", launch.world_size, launch.rank, of_rank_0.world_size),
               "start all ranks of a run with the same");
}

// In a store that holds nothing but what these processes say.
void meet_once(const StorePointer& run, const Launch& launch, double timeout) {
  const auto came_key = [](int rank) { return fmt::format("came/{}", rank); };
  std::vector<std::string> keys;
  for (int rank = 0; rank < launch.world_size; ++rank) keys.push_back(state_key(rank));
  if (run->add(came_key(launch.rank), 1) > 1) {
    throw Error(
        "MASTER_PORT",
        fmt::format("another rank {} has come to {}:{} before", launch.rank, launch.address, launch.port),
        "choose another port for each run that is there at a time; a rank that is started again by hand needs all "
        "others to be, too");
  }
  // Who holds the store tells of those that ended before they came.
  const auto check_failed = [&](const std::vector<std::string>& of) {
    for (const auto& bytes : run->multiGet(of)) {
      const auto state = RankState::read(bytes);
      if (state.phase != RankState::Phase::failed) continue;
      run->set(state_key(launch.rank), state.bytes());
      // The others read it in the store that goes with this process.
      if (launch.rank == 0 && !launch.agent_store) std::this_thread::sleep_for(milliseconds(1));
      throw OtherRankFailure(fmt::format("rank {}", launch.rank), fmt::format("stopped, because {}", state.reason));
    }
  };
  const auto wait_for = [&](const std::vector<std::string>& these) {
    try {
      run->wait(these, milliseconds(timeout));
    } catch (const std::exception& error) {
      auto said = keys;
      std::erase_if(said, [&](const auto& key) { return !run->check({key}); });
      check_failed(said);
      const auto missing = missing_ranks(run, launch, 0, came_key);
      if (missing.empty()) throw Failure(fmt::format("rank {}", launch.rank), message_of(error));
      throw did_not_come(missing, launch, timeout);
    }
  };
  RankState own;
  own.world_size = launch.world_size;
  if (launch.rank > 0) {
    wait_for({keys.front()});
    if (const auto error = other_world_size(RankState::read(run->get(keys.front())), launch)) {
      own.phase = RankState::Phase::failed;
      own.origin = launch.rank;
      own.reason = fmt::format("rank {} failed: {}", launch.rank, error->what());
      run->set(state_key(launch.rank), own.bytes());
      throw Error(*error);
    }
  }
  run->set(state_key(launch.rank), own.bytes());
  wait_for(keys);
  check_failed(keys);
}

// Rank 0, where there may be an earlier attempt's keys.
StorePointer lead(const StorePointer& run, const Launch& launch, double timeout) {
  const auto name = unique_name();
  const auto part = part_of(run, name);
  std::vector<std::string> hellos;
  for (int rank = 1; rank < launch.world_size; ++rank) hellos.push_back(hello_key(rank));
  part->set(state_key(0), RankState().bytes());
  run->set(leader_key(launch), name);
  Patience patience(timeout);
  while (!part->check(hellos)) {
    if (run->get_to_str(leader_key(launch)) != name) {
      throw Failure("rank 0", fmt::format("another rank 0 has come to {}:{}", launch.address, launch.port));
    }
    if (patience.over()) throw did_not_come(missing_ranks(part, launch, 1, hello_key), launch, timeout);
    patience.pause();
  }
  std::string names;
  for (const auto& hello : hellos) names += part->get_to_str(hello) + "\n";
  part->set(ready_key, names);
  return part;
}

// The other ranks. Which part a leader that is there has named may be an earlier attempt's: it never answers, or has
// answered others.
StorePointer follow(const StorePointer& run, const Launch& launch, double timeout) {
  const auto name = unique_name();
  std::string leader;
  StorePointer part;
  bool passed_over = false;
  for (Patience patience(timeout);; patience.pause()) {
    if (run->check({leader_key(launch)})) {
      if (const auto now = run->get_to_str(leader_key(launch)); now != leader) {
        leader = now;
        part = part_of(run, leader);
        passed_over = false;
        part->set(state_key(launch.rank), RankState().bytes());
        part->set(hello_key(launch.rank), name);
        patience.renew();
      }
      if (!passed_over && part->check({ready_key})) {
        if (part->get_to_str(ready_key).find(name) != std::string::npos) return part;
        passed_over = true;
        // If that attempt is still alive, this process's earlier self is not: the others need not wait for it.
        RankState state;
        state.phase = RankState::Phase::failed;
        state.origin = launch.rank;
        state.reason = fmt::format("rank {} was started again", launch.rank);
        part->set(state_key(launch.rank), state.bytes());
      }
    }
    if (!patience.over()) continue;
    std::vector<int> missing;
    if (part && !passed_over) missing = missing_ranks(part, launch, 1, hello_key);
    if (missing.empty()) missing = {0};
    throw did_not_come(missing, launch, timeout);
  }
}

}  // namespace

StorePointer open_store(const Launch& launch, double timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = launch.rank == 0 && !launch.agent_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout);
  const auto place = fmt::format("{}:{}", launch.address, launch.port);
  // Connecting has a time limit, but not the first exchange: with a server of another kind it never ends. A thread that
  // waits in it is left behind; this process is about to end then.
  std::promise<StorePointer> opening;
  auto opened = opening.get_future();
  std::thread([address = launch.address, options, result = std::move(opening)]() mutable {
    try {
      result.set_value(c10::make_intrusive<c10d::TCPStore>(address, options));
    } catch (...) {
      result.set_exception(std::current_exception());
    }
  }).detach();
  try {
    if (opened.wait_for(milliseconds(2 * timeout + 1)) != std::future_status::ready) {
      throw std::runtime_error("what listens there does not answer as a store does");
    }
    return opened.get();
  } catch (const std::exception& error) {
    const auto reason = message_of(error);
    if (options.isServer) {
      if (reason.find("server socket") == std::string::npos) {
        throw Error("MASTER_ADDR", fmt::format("rank 0 cannot reach itself at {} ({})", place, reason),
                    "name the machine of rank 0, as all others reach it");
      }
      throw Error("MASTER_PORT", fmt::format("rank 0 cannot open port {} ({})", launch.port, reason),
                  "choose a port that is free on its machine");
    }
    throw Failure(fmt::format("rank {}", launch.rank),
                  fmt::format("cannot reach {} at {} within {:g} s ({})",
                              launch.agent_store ? launcher_name(launch.launcher) : "rank 0", place, timeout, reason));
  }
}

StorePointer with_prefix(const StorePointer& store, const Launch& launch) {
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("transformer/{}", launch.run), store);
}

StorePointer meet(const StorePointer& store, const Launch& launch, double timeout) {
  const auto run = with_prefix(store, launch);
  try {
    if (launch.store_outlives_attempts()) {
      return launch.rank == 0 ? lead(run, launch, timeout) : follow(run, launch, timeout);
    }
    meet_once(run, launch, timeout);
    return run;
  } catch (const Error&) {
    throw;
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw Failure(fmt::format("rank {}", launch.rank), message_of(error));
  }
}

}  // namespace transformer
