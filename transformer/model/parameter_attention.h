#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "transformer/model/feed_forward.h"

namespace transformer {

/// Sizes of the sub-layer, as ModelSettings has them.
struct ParameterAttentionOptions {
  int64_t d_model = 512;  // D, of what goes in and comes out
  int64_t heads = 8;      // h_p
  int64_t d_k = 64;       // d_pk
  int64_t d_v = 64;       // d_pv
  int64_t pairs = 1536;   // n_p
  double dropout = 0;     // on the weights, in training
  bool bias = false;      // of the query's and the output's projection
};

/// Attention over parameters in the feed-forward network's place (the paper's unprinted section "Two Feed-Forward
/// Layers = Attention over Parameters"): multi-head attention whose keys and values are trained, n_p pairs in every
/// head, and scaled by sqrt(D) to resemble activations. Parameters `query.weight` [h_p d_pk, D], `keys` [h_p, n_p,
/// d_pk], `values` [h_p, n_p, d_pv], `output.weight` [D, h_p d_pv]: (h_p D + h_p n_p)(d_pk + d_pv) numbers.
class ParameterAttentionImpl : public PositionWise {
 public:
  /// With random weights.
  explicit ParameterAttentionImpl(const ParameterAttentionOptions& options);
  torch::Tensor forward(const torch::Tensor& x) override;

 private:
  ParameterAttentionOptions options_;
  torch::nn::Linear query_{nullptr}, output_{nullptr};
  torch::Tensor keys_, values_;
};
TORCH_MODULE(ParameterAttention);

}  // namespace transformer
