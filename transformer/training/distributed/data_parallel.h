#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "transformer/training/distributed/communicator.h"

namespace transformer {

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
  /// How gradients are cut into sums.
  struct Options {
    double first_bucket_mb = 1;  // small, so that the first sum starts early
    double bucket_mb = 25;       // of all other buckets
  };

  /// How many bytes went into sums, and when.
  struct Statistics {
    /// Gradients that travel together.
    struct Bucket {
      int64_t bytes = 0;  // of its gradients
      double begun = 0;   // seconds after the backward pass began
      double ended = 0;   // NCCL: when it was handed to the GPU
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
  /// With the defaults.
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
  /// Throws Failure naming the rank that is missing, and, of several processes, where a parameter has no part in
  /// `loss`; of a single one such a parameter gets zeros.
  void backward(const at::Tensor& loss = {});

  /// All ranks. Throws Failure naming the first parameter of which two ranks do not hold the same bits.
  void check_replicas();

  /// Of the steps so far.
  const Statistics& statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transformer
