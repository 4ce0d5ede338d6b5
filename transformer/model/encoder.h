#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "transformer/model/attention.h"
#include "transformer/model/feed_forward.h"
#include "transformer/model/settings.h"

namespace transformer {

/// LayerNorm(x + Dropout(Sublayer(x))): the residual connection around every sub-layer (§3.1, §5.4).
class ResidualImpl : public torch::nn::Module {
 public:
  explicit ResidualImpl(const ModelSettings& settings);
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& sublayer_output);

 private:
  double dropout_;
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(Residual);

/// The attention options that a model's settings ask for.
MultiHeadAttentionOptions attention_options(const ModelSettings& settings);

/// Self-attention, then feed-forward (§3.1).
class EncoderLayerImpl : public torch::nn::Module {
 public:
  explicit EncoderLayerImpl(const ModelSettings& settings);

  /// x [B, S, D] -> [B, S, D]; `call.mask` broadcastable to [B, H, S, S].
  Attended forward(const torch::Tensor& x, const AttentionOptions& call = {});

 private:
  MultiHeadAttention self_attention_{nullptr};
  FeedForward feed_forward_{nullptr};
  Residual after_self_attention_{nullptr}, after_feed_forward_{nullptr};
};
TORCH_MODULE(EncoderLayer);

/// The stack of encoder layers.
class EncoderImpl : public torch::nn::Module {
 public:
  explicit EncoderImpl(const ModelSettings& settings);

  struct Output {
    torch::Tensor memory;                // [B, S, D]
    std::vector<torch::Tensor> weights;  // a layer each [B, H, S, S], if asked for
  };
  Output forward(torch::Tensor x, const AttentionOptions& call = {});

 private:
  std::vector<EncoderLayer> layers_;
};
TORCH_MODULE(Encoder);

}  // namespace transformer
