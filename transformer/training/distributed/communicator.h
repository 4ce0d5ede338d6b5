#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transformer/training/distributed/launch.h"

namespace transformer {

/// How tensors travel between processes: Gloo for CPUs, NCCL for GPUs (through LibTorch's CUDA part; see open_device).
enum class Backend {
  gloo,  // over TCP, from the host's memory
  nccl   // between GPUs, without the host
};

/// What a process says to the others of its run, and hears of them.
///
/// Every process of a run opens one, and calls the operations marked "all ranks" in the same order. One that fails
/// tells the others why; one that dies or hangs is found out: the others end with a Failure that names it, as soon
/// as they meet it in an operation, and after `timeout_seconds` at the latest. After a Failure the communicator is only
/// good for being destroyed.
///
/// With a single process everything returns at once, and nothing is opened.
class Communicator {
 public:
  /// How processes talk.
  struct Options {
    Backend backend = Backend::gloo;  // for tensors; what hosts say to each other goes through Gloo
    /// How long a process waits for another in one operation, and at the start for all to come. It must be longer than
    /// the processes' paces differ between two operations; work that one of them does alone goes through on_rank_0,
    /// which does not count.
    double timeout_seconds = 300;
  };

  /// All ranks. Throws Failure naming the ranks that did not come in time; Error for a port that is taken, a network
  /// interface that cannot be used, or a rank that was told another number of them than rank 0, and for NCCL where its
  /// module is missing or cannot be loaded, or it refuses by itself, as without a GPU: each in its own words.
  Communicator(const Launch& launch, const Options& options);
  /// Says good-bye. While an exception passes through, the others hear of that (guard tells them its text, too). The
  /// process that holds the store stays until the others have gone.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// This process's number, from 0.
  int rank() const;
  /// How many processes there are.
  int world_size() const;
  /// How many of the processes are on this machine.
  int local_world_size() const;

  /// All ranks. Returns when all have called it.
  void barrier();
  /// All ranks. Overwrites `tensors`, of the same shapes and types everywhere, with rank 0's.
  void broadcast(const std::vector<at::Tensor>& tensors);
  /// All ranks. Overwrites `tensor` with the sum over ranks; the same bits everywhere.
  void all_reduce_sum(at::Tensor tensor);

  /// All ranks. Overwrites `all` [W · N] with every rank's `own` [N], rank after rank.
  void all_gather(at::Tensor all, const at::Tensor& own);

  /// All ranks. Every rank's `text`, rank after rank.
  std::vector<std::string> gather(const std::string& text);

  /// All ranks. Whether any of them said so: for decisions that all must make alike, such as to stop after a signal
  /// that reaches them in different steps.
  bool any(bool here);

  /// All ranks. Compares `text`, line by line, with rank 0's. Throws Error on every rank (naming `what`, the rank and
  /// the first line that differs) unless all have the same.
  void check_same(const std::string& what, const std::string& text);

  /// All ranks. The same of what each sees of `what` at `place`, in a folder that all should share: nothing, where
  /// `seen` is empty. Throws Error on every rank (naming `place`, the rank and `what`) unless all see what rank 0 does.
  void check_shared(const std::string& place, const std::string& what, const std::string& seen);

  /// All ranks. The opposite of check_same: throws Error on every rank (naming `what` and two ranks) where two have the
  /// same `text`, which may not be empty: such as a GPU that two processes would use.
  void check_distinct(const std::string& what, const std::string& text);

  /// All ranks. Rank 0 does `work` while the others wait: without a time limit for as long as its process shows signs
  /// of life. What `work` throws is thrown on rank 0, and as a Failure with its text on the others.
  void on_rank_0(const std::function<void()>& work);

  /// Runs `body`; what it throws is told to the others and thrown on. Belongs around everything between the
  /// construction and the end of training, once.
  void guard(const std::function<void()>& body);

  /// Throws Failure if another process is known to have failed or died. Costs nothing: for long work between
  /// operations.
  void check();

 private:
  friend class DistributedDataParallel;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transformer
