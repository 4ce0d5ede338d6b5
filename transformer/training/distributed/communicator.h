#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transformer/training/distributed/launch.h"

namespace transformer {

/// How tensors travel between processes: Gloo for CPUs, NCCL for GPUs (through LibTorch's CUDA part; see open_device).
enum class Backend { gloo, nccl };

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
  struct Options {
    Backend backend = Backend::gloo;
    /// How long a process waits for another in one operation, and at the start for all to come. It must be longer than
    /// the processes' paces differ between two operations; work that one of them does alone goes through on_rank_0,
    /// which does not count.
    double timeout_seconds = 300;
  };

  /// All ranks. Throws Failure naming the ranks that did not come in time; Error for a port that is taken, and for NCCL
  /// where its module is missing or cannot be loaded, or it refuses by itself, as without a GPU: each in its own words.
  Communicator(const Launch& launch, const Options& options);
  /// Says good-bye. While an exception passes through, the others hear of that (guard tells them its text, too). The
  /// process that holds the store stays until the others have gone.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int world_size() const;
  /// How many of the processes are on this machine.
  int local_world_size() const;

  /// All ranks. Returns when all have called it.
  void barrier();
  /// All ranks. Overwrites `tensors`, of the same shapes and types everywhere, with rank 0's.
  void broadcast(const std::vector<at::Tensor>& tensors);
  /// All ranks. Overwrites `tensor` with the sum over ranks; the same bits everywhere.
  void all_reduce_sum(at::Tensor tensor);

  /// All ranks. Whether any of them said so: for decisions that all must make alike, such as to stop after a signal
  /// that reaches them in different steps.
  bool any(bool here);

  /// All ranks. Compares `text`, line by line, with rank 0's. Throws Error on every rank (naming `what`, the rank and
  /// the first line that differs) unless all have the same.
  void check_same(const std::string& what, const std::string& text);

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

/// Synchronous data parallelism (Li et al., 2020, "PyTorch Distributed"): every process holds the same model, computes
/// gradients of its own micro-batches, and all add them up in buckets while the backward pass still runs.
///
/// Gradients are SUMS over processes, not means: a loss divided by the token count of all processes' micro-batches
/// gives the gradient of the mean over all of them, however unequal the parts are. (Dividing by the world size first
/// and multiplying afterwards would round twice unless it is a power of two.) Every rank gets the same bits.
///
///     for (each of this rank's micro-batches but the last) parallel.accumulate(loss);
///     parallel.backward(loss of the last one);   // or parallel.backward() if it has none
///     adam.step(rate);
///
/// Between steps gradients may be dropped (Adam::clear_gradients) or zeroed; they live in the buckets' memory after
/// backward().
class DistributedDataParallel {
 public:
  struct Options {
    double first_bucket_mb = 1;  // small, so that the first sum starts early
    double bucket_mb = 25;
  };

  /// How many bytes went into sums, and when.
  struct Statistics {
    struct Bucket {
      int64_t bytes = 0;
      double begun = 0;  // seconds after the backward pass began
      double ended = 0;  // NCCL: when it was handed to the GPU
    };
    int64_t steps = 0;            // calls of backward()
    int64_t collectives = 0;      // buckets summed
    int64_t bytes = 0;            // of gradients summed; on the wire it is 2·(W-1)/W of them from each rank
    std::vector<Bucket> buckets;  // of the last step, in the order of their sums
    double computed = 0;          // last step: seconds until all gradients were computed..
    double summed = 0;            // .. and until all were summed
  };

  /// All ranks. `module`'s parameters must stay the tensors they are (moving a module to a device may replace them:
  /// move it before). Parameters and buffers take rank 0's values. Throws Error naming the first parameter whose name,
  /// shape or type differs between ranks. `communicator` must outlive this.
  DistributedDataParallel(Communicator& communicator, const torch::nn::Module& module, const Options& options);
  DistributedDataParallel(Communicator& communicator, const torch::nn::Module& module)
      : DistributedDataParallel(communicator, module, Options()) {}
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// Adds the gradients of `loss` to this rank's own, without talking to the others.
  void accumulate(const at::Tensor& loss);

  /// All ranks, once a step. Adds the gradients of `loss` to this rank's own, then sums over ranks, each bucket as soon
  /// as it is complete. Without `loss`, this rank contributes what it has accumulated, or zeros. Afterwards every
  /// parameter has a gradient, the same on all ranks.
  /// Throws Failure naming the rank that is missing, and where a parameter has no part in `loss`.
  void backward(const at::Tensor& loss = {});

  /// All ranks. Throws Failure naming the first parameter of which two ranks do not hold the same bits.
  void check_replicas();

  const Statistics& statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The store that the processes of run_processes meet at, held by their parent.
class StoreHost {
 public:
  /// Takes over `descriptor`, a listening socket at launch.port.
  StoreHost(const Launch& launch, int descriptor);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  /// Tells the others how `rank` ended ("was ended by signal 9 (Killed)"), unless it said so itself.
  void note_end(int rank, const std::string& how);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transformer
