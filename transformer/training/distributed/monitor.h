#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "transformer/training/distributed/clock.h"
#include "transformer/training/distributed/launch.h"
#include "transformer/training/distributed/rank_state.h"

namespace transformer {

/// Writes this rank's state into the store and reads the others', again and again, in a thread with a connection of its
/// own. Only this thread waits for the store, which may be as dead as the process that holds it.
class Monitor : public std::enable_shared_from_this<Monitor> {
 public:
  /// Ends the process, whose main thread is stuck for good, and says why.
  using EndProcess = std::function<void(const std::string& reason)>;
  /// By a line on standard error and status 1.
  static EndProcess end_process();

  /// `end_process`: where operations return before they are done, as NCCL's do, the main thread may be stuck for good
  /// without anybody to tell it. It is then called once another rank's end is certain, or once this rank and one that
  /// is behind it in operations have both stood still for the whole time limit. None: every operation has a limit of
  /// its own.
  Monitor(c10::intrusive_ptr<c10d::Store> store, const Launch& launch, double timeout, EndProcess end_process = {});

  /// Starts the thread, which keeps this alive until it ends.
  void start();
  /// Ends the thread, or leaves it behind where the store holds it for good.
  void stop();

  /// An operation of all ranks begins here.
  void enter();
  /// Rank 0: a call of on_rank_0 begins: work that may take long, such as writing a checkpoint, and is not to be cut
  /// off.
  void begin_section();
  /// Rank 0: that call has ended.
  void end_section();
  /// Tells the others why this rank ends; the first reason counts.
  void fail(int origin, const std::string& reason);
  /// Tells the others that this rank has come to its end in good order.
  void leave();

  /// Throws Failure if another rank has failed, or been silent for the whole time limit.
  void check();
  /// Waits until rank 0 has ended `count` sections.
  void wait_for_section(int64_t count);
  /// Finds out which rank is to blame for an operation that failed here, and throws a Failure that says so.
  [[noreturn]] void explain(const std::string& error);
  /// For the process that holds the store: waits until all others have said that they go, or said nothing for long.
  void wait_for_others(double limit);

  /// Seconds without a sign of life after which a rank counts as dead.
  double silence() const { return silence_; }

 private:
  struct Peer {
    RankState state;
    Clock::time_point changed;  // when it was last heard of..
    Clock::time_point moved;    // .. and when it was last seen to begin an operation or to end a section
  };
  struct Fault {
    int origin;
    std::string reason;
  };

  // Changes the own state and waits, for a while, until it is in the store.
  template <class Change>
  void say(Change change);
  static Fault early_end(int rank);
  // Who has failed, as far as is known; a rank that has come to its end has not. What a rank says of itself comes
  // before what others say of it.
  std::optional<Fault> find_fault(double silence) const;
  [[noreturn]] void give_up(std::unique_lock<std::mutex>& lock, const Fault& fault);
  void run();
  // On a GPU nothing wakes a main thread that waits for a sum which a dead rank will never complete.
  void end_process_if_stuck();
  // A rank that is behind this one in operations and does not move, while this one waits.
  std::optional<Fault> find_hung() const;
  Fault did_not_come(int rank) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const Launch launch_;
  const double timeout_, interval_, silence_;
  const EndProcess end_process_;
  std::vector<std::string> keys_;

  std::mutex mutex_;
  std::condition_variable wake_;   // for the thread: something to say
  std::condition_variable heard_;  // for the others: something was heard
  RankState own_;
  std::vector<Peer> peers_;
  Clock::time_point contact_;  // last time the store answered
  Clock::time_point moved_;    // last time this rank began an operation or ended a section
  std::optional<Clock::time_point> fault_found_;
  uint64_t changes_ = 0, said_ = 0;
  int waiting_ = 0;
  bool stop_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace transformer
