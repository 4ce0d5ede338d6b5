#include "transformer/training/distributed/monitor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "transformer/base/error.h"

namespace transformer {

Monitor::EndProcess Monitor::end_process() {
  return [](const std::string& reason) {
    std::fputs((reason + "\n").c_str(), stderr);
    std::fflush(stderr);
    _exit(1);
  };
}

Monitor::Monitor(c10::intrusive_ptr<c10d::Store> store, const Launch& launch, double timeout, EndProcess end_process)
    : store_(std::move(store)),
      launch_(launch),
      timeout_(timeout),
      interval_(std::clamp(timeout / 20, 0.1, 1.0)),
      // A busy machine may hold the thread up for a while.
      silence_(std::max(2.0, 5 * interval_)),
      end_process_(std::move(end_process)),
      peers_(launch.world_size) {
  for (int rank = 0; rank < launch.world_size; ++rank) keys_.push_back(state_key(rank));
  own_.world_size = launch.world_size;
  contact_ = moved_ = Clock::now();
  for (auto& peer : peers_) peer.changed = peer.moved = contact_;
}

void Monitor::start() {
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void Monitor::stop() {
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    wake_.notify_all();
    heard_.wait_for(lock, milliseconds(silence_), [&] { return ended_; });
    if (!ended_) {
      thread_.detach();
      return;
    }
  }
  thread_.join();
}

void Monitor::enter() {
  const std::lock_guard lock(mutex_);
  ++own_.entered;
  moved_ = Clock::now();
}

void Monitor::begin_section() {
  const std::lock_guard lock(mutex_);
  own_.alone = true;
}

template <class Change>
void Monitor::say(Change change) {
  std::unique_lock lock(mutex_);
  change(own_);
  const auto wanted = ++changes_;
  wake_.notify_all();
  // Not for a store that has stopped answering.
  const double patience = silence_ - seconds_since(contact_);
  heard_.wait_for(lock, milliseconds(patience), [&] { return ended_ || said_ >= wanted; });
}

void Monitor::end_section() {
  {
    const std::lock_guard lock(mutex_);
    own_.alone = false;
    moved_ = Clock::now();
  }
  say([](RankState& state) { ++state.sections; });
}

void Monitor::fail(int origin, const std::string& reason) {
  say([&](RankState& state) {
    if (state.phase != RankState::Phase::running) return;
    state.phase = RankState::Phase::failed;
    state.origin = origin;
    state.reason = reason;
  });
}

void Monitor::leave() {
  say([](RankState& state) {
    if (state.phase == RankState::Phase::running) state.phase = RankState::Phase::left;
  });
}

void Monitor::check() {
  std::unique_lock lock(mutex_);
  if (const auto fault = find_fault(timeout_)) give_up(lock, *fault);
}

void Monitor::wait_for_section(int64_t count) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  wake_.notify_all();
  for (;;) {
    if (peers_[0].state.sections >= count) break;
    auto fault = find_fault(timeout_);
    if (!fault && peers_[0].state.phase == RankState::Phase::left) fault = early_end(0);
    if (fault) {
      --waiting_;
      give_up(lock, *fault);
    }
    heard_.wait_for(lock, milliseconds(interval_));
  }
  --waiting_;
}

void Monitor::explain(const std::string& error) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  wake_.notify_all();
  const auto begun = Clock::now();
  std::optional<Fault> fault;
  // Who died without a word is known by its silence.
  while (!(fault = find_fault(silence_)) && seconds_since(begun) < 1.5 * silence_) {
    heard_.wait_for(lock, milliseconds(interval_));
  }
  for (int rank = 0; rank < launch_.world_size && !fault; ++rank) {
    if (rank != launch_.rank && peers_[rank].state.phase == RankState::Phase::left) fault = early_end(rank);
  }
  if (!fault) {
    int last = launch_.rank;
    auto entered = [&](int rank) { return rank == launch_.rank ? own_.entered : peers_[rank].state.entered; };
    for (int rank = 0; rank < launch_.world_size; ++rank) {
      if (entered(rank) < entered(last)) last = rank;
    }
    fault = last == launch_.rank ? Fault{-1, fmt::format("an operation with the other ranks failed ({})", error)}
                                 : did_not_come(last);
  }
  --waiting_;
  give_up(lock, *fault);
}

void Monitor::wait_for_others(double limit) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  wake_.notify_all();
  const auto begun = Clock::now();
  auto gone = [&](int rank) {
    return rank == launch_.rank || peers_[rank].state.phase != RankState::Phase::running ||
           seconds_since(peers_[rank].changed) > silence_;
  };
  auto all_gone = [&] {
    for (int rank = 0; rank < launch_.world_size; ++rank) {
      if (!gone(rank)) return false;
    }
    return true;
  };
  while (!ended_ && !all_gone() && seconds_since(begun) < limit) heard_.wait_for(lock, milliseconds(interval_));
  --waiting_;
  lock.unlock();
  // What they said may still be on its way through their last exchange with the store.
  std::this_thread::sleep_for(milliseconds(0.1));
}

Monitor::Fault Monitor::early_end(int rank) {
  return {rank, fmt::format("rank {} ended before the others", rank)};
}

std::optional<Monitor::Fault> Monitor::find_fault(double silence) const {
  std::optional<Fault> fault;
  for (int rank = 0; rank < launch_.world_size; ++rank) {
    const auto& state = peers_[rank].state;
    if (rank == launch_.rank || state.phase != RankState::Phase::failed) continue;
    if (state.origin == rank) return Fault{rank, state.reason};
    // Itself cannot be the one that it is waiting for.
    if (!fault && state.origin != launch_.rank) fault = {state.origin, state.reason};
  }
  if (fault) return fault;
  const double without_store = seconds_since(contact_);
  if (ended_ || without_store > silence) {
    // Rank 0 ends last and says so; when its store goes without a word, it went the same way.
    if (!launch_.agent_store) {
      return Fault{0, fmt::format("rank 0, which holds the store, has given no sign of life for {:.0f} s",
                                  std::max(without_store, interval_))};
    }
    return Fault{-1, fmt::format("{}, which holds the store at {}:{}, cannot be reached any more",
                                 launcher_name(launch_.launcher), launch_.address, launch_.port)};
  }
  int quietest = -1;
  for (int rank = 0; rank < launch_.world_size; ++rank) {
    if (rank == launch_.rank || peers_[rank].state.phase == RankState::Phase::left) continue;
    if (seconds_since(peers_[rank].changed) <= silence) continue;
    if (quietest < 0 || peers_[rank].changed < peers_[quietest].changed) quietest = rank;
  }
  if (quietest < 0) return std::nullopt;
  return Fault{quietest, fmt::format("rank {} has given no sign of life for {:.0f} s", quietest,
                                     seconds_since(peers_[quietest].changed))};
}

void Monitor::give_up(std::unique_lock<std::mutex>& lock, const Fault& fault) {
  lock.unlock();
  fail(fault.origin, fault.reason);
  const auto where = fmt::format("rank {}", launch_.rank), what = fmt::format("stopped, because {}", fault.reason);
  if (fault.origin < 0 || fault.origin == launch_.rank) throw Failure(where, what);
  throw OtherRankFailure(where, what);
}

void Monitor::run() {
  try {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      ++own_.beat;
      const auto bytes = own_.bytes();
      const auto saying = changes_;
      lock.unlock();
      store_->set(state_key(launch_.rank), bytes);
      const auto values = store_->multiGet(keys_);
      lock.lock();
      said_ = saying;
      contact_ = Clock::now();
      for (int rank = 0; rank < launch_.world_size; ++rank) {
        auto state = RankState::read(values[rank]);
        if (state.beat == peers_[rank].state.beat && state.phase == peers_[rank].state.phase) continue;
        const bool moved = state.entered != peers_[rank].state.entered || state.sections != peers_[rank].state.sections;
        peers_[rank] = {std::move(state), contact_, moved ? contact_ : peers_[rank].moved};
      }
      heard_.notify_all();
      end_process_if_stuck();
      const bool hurried = waiting_ > 0;
      const double pause = hurried ? std::min(interval_, 0.02) : interval_;
      wake_.wait_for(lock, milliseconds(pause),
                     [&] { return stop_ || changes_ != said_ || (waiting_ > 0 && !hurried); });
    }
  } catch (const std::exception&) {  // the store is gone; find_fault knows whose that is
  }
  std::unique_lock lock(mutex_);
  ended_ = true;
  heard_.notify_all();
  // Where the main thread may be stuck, this one goes on watching until it is told to stop.
  while (end_process_ && !stop_) {
    end_process_if_stuck();
    wake_.wait_for(lock, milliseconds(interval_));
  }
}

std::optional<Monitor::Fault> Monitor::find_hung() const {
  // Whoever waits for a section of rank 0's hears of its end by other means, and rank 0's work may take any time.
  if (waiting_ > 0 || seconds_since(moved_) <= timeout_) return std::nullopt;
  int last = -1;
  for (int rank = 0; rank < launch_.world_size; ++rank) {
    const auto& peer = peers_[rank];
    if (rank == launch_.rank || peer.state.phase != RankState::Phase::running) continue;
    if (peer.state.entered >= own_.entered || seconds_since(peer.moved) <= timeout_) continue;
    if (last < 0 || peer.state.entered < peers_[last].state.entered) last = rank;
  }
  if (last < 0) return std::nullopt;
  return did_not_come(last);
}

Monitor::Fault Monitor::did_not_come(int rank) const {
  return {rank, fmt::format("rank {} did not come to an operation of all ranks within {:g} s, although its process is "
                            "alive",
                            rank, timeout_)};
}

void Monitor::end_process_if_stuck() {
  if (!end_process_ || own_.alone || own_.phase != RankState::Phase::running) return;
  auto fault = find_fault(timeout_);
  if (!fault) fault = find_hung();
  if (!fault) {
    fault_found_.reset();
    return;
  }
  if (!fault_found_) fault_found_ = Clock::now();
  if (seconds_since(*fault_found_) < 2 * silence_) return;  // time for it to find out by itself
  end_process_(fmt::format("rank {}: stopped, because {}", launch_.rank, fault->reason));
}

}  // namespace transformer
