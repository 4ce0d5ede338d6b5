#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <mutex>

#include "transformer/architecture/settings.h"

namespace transformer {

/// `sinusoids` (architecture/sinusoids.h) as a tensor [count, D] of float64.
torch::Tensor sinusoid_table(int64_t first, int64_t count, int64_t d_model);

/// The encoding that is added to embeddings: sinusoids, or a learned table (Table 3 E; parameter `weight`).
class PositionalEncodingImpl : public torch::nn::Module {
 public:
  /// `max_positions`: those that are learned.
  PositionalEncodingImpl(ModelSettings::Positions kind, int64_t d_model, int64_t max_positions);

  /// [count, D] for positions first .. first + count - 1, on `like`'s device and of its type. Sinusoids go on for
  /// ever; asking a learned table for more than `max_positions` throws Error.
  torch::Tensor forward(int64_t first, int64_t count, const torch::Tensor& like);

 private:
  ModelSettings::Positions kind_;
  int64_t d_model_;
  torch::Tensor learned_;    // undefined for sinusoids
  std::mutex mutex_;         // for `sinusoids_`: a model may encode in several threads
  torch::Tensor sinusoids_;  // as far as an input has asked for, where and as it last did; no buffer, whose type
                             // changes with the module's, and which would come back rounded
};
TORCH_MODULE(PositionalEncoding);

}  // namespace transformer
