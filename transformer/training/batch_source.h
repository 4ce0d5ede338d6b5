#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace transformer {

/// What a process computes at once, on the host.
struct MicroBatch {
  std::vector<at::Tensor> tensors;  // for the loss, which knows what they are; none: another rank's micro-batch
  int64_t items = 0;                // what its loss is a sum over: target tokens, examples
  int64_t source_tokens = 0;        // of which the run's records tell, as of the next two
  int64_t target_tokens = 0;        // ends counted
  double flops = 0;                 // of forward and backward pass
};

/// Where a source of batches stands. Checkpoints keep it.
struct BatchPosition {
  int64_t epoch = 0;  // pass over the data
  int64_t batch = 0;  // micro-batches of it that are done
  // Their Plan::tokens, where the source says so; 0: not. A run may go on with micro-batches of another size.
  int64_t tokens = 0;
  std::string state;  // whatever else the source needs to go on
};

/// Where micro-batches come from. What comes must follow from the position alone (and the plan), so that a run that
/// goes on from a checkpoint sees what it would have seen.
class BatchSource {
 public:
  /// How a step's micro-batches are shared out.
  struct Plan {
    int64_t tokens = 0;           // of a micro-batch, at most: training.micro_batch_tokens, or what follows from others
    int64_t count = 1;            // micro-batches a step, of all ranks together
    int64_t rank = 0, ranks = 1;  // whose micro-batches are to be made, and of how many processes
    uint64_t seed = 1;            // training.seed

    /// Whether micro-batch `number` of a step is this rank's.
    bool mine(int64_t number) const { return number % ranks == rank; }
  };
  /// For `training.micro_batch: auto`.
  struct Largest {
    int64_t longest = 1;                             // tokens of the longest row: no micro-batch is smaller
    int64_t worth_measuring = 512;                   // tokens from which memory grows in proportion
    std::function<MicroBatch(int64_t tokens)> make;  // as costly as one of so many tokens can be
    /// Tokens, padding counted, that one planned for so many (Plan::tokens) can have; null: no more.
    std::function<int64_t(int64_t tokens)> most = {};
  };

  virtual ~BatchSource() = default;

  /// Comes once, before the first `next`.
  virtual void begin(const Plan& plan) = 0;
  /// The micro-batch at `position`, number 0 .. count - 1 of its step, and moves the position past it. All ranks ask
  /// for all of a step; of those that are not theirs (Plan::mine) only the position counts.
  virtual MicroBatch next(int64_t number, BatchPosition& position) = 0;
  /// None: the size of micro-batches is a setting.
  virtual std::optional<Largest> largest() const { return {}; }
};

}  // namespace transformer
