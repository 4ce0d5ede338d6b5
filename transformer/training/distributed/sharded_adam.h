#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "transformer/training/adam.h"
#include "transformer/training/distributed/communicator.h"

namespace transformer {

/// Adam (§5.3) whose moments are shared out over the processes (Rajbhandari et al., 2020, "ZeRO", its first stage): of
/// all parameters, laid end to end, every rank moves a part of its own, and then all tell each other their parts.
/// Moments take 1/W of the memory, on each of W ranks; weights and gradients stay whole.
///
/// Weights are those of Adam, bit for bit. A rank's part begins at its share of the numbers, or up to 63 before: a
/// multiple of 64 from a parameter's first, since vectors of numbers and what is left over at the end of a tensor need
/// not be rounded alike.
class ShardedAdam : public Optimizer {
 public:
  /// All ranks, with the same parameters. `piece_mb`: weights and moments that travel at a time, of all ranks together.
  /// `communicator` must outlive this. Throws Error where the parameters are of several types, or one is not
  /// contiguous.
  ShardedAdam(Communicator& communicator, NamedParameters parameters, const Adam::Options& options,
              double piece_mb = 25);

  /// All ranks, holding the same gradients; afterwards they hold the same weights. As Adam::step otherwise.
  void step(double rate, const at::Tensor& norm = {}) override;
  /// Moments and step counts of this rank's parts, flat.
  TensorMap state() const override;
  /// All ranks. What Adam::state would be, on rank 0 in the host's memory; nothing on the others.
  TensorMap gather_state() override;
  /// Takes what gather_state or Adam::state gave, on however many ranks.
  void load(const TensorMap& state, const std::string& where) override;

 private:
  /// Of a parameter: numbers from `offset` on that are this rank's.
  struct Part {
    size_t parameter;
    int64_t offset;
    at::Tensor values;  // a view, flat
  };
  using Visit = std::function<void(size_t parameter, int64_t offset, const at::Tensor& values)>;

  std::vector<Part> parts_of(int64_t begin, int64_t end) const;
  /// All ranks. Calls `take` for parts of what every rank holds, piece by piece; `give` fetches this rank's own.
  void gather(const std::function<at::Tensor(const Part& part)>& give, const Visit& take) const;

  Communicator& communicator_;
  int64_t piece_bytes_;
  std::vector<at::Tensor> flat_;  // every parameter, a view
  std::vector<int64_t> begins_;   // of every parameter among all numbers, and their count
  std::vector<int64_t> bounds_;   // rank r's are those from bounds_[r] to bounds_[r + 1]
  std::vector<Part> parts_;
  Adam adam_;  // of parts_
};

}  // namespace transformer
