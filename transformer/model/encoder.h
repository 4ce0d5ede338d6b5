#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <vector>

#include "transformer/architecture/settings.h"
#include "transformer/model/attention.h"
#include "transformer/model/feed_forward.h"

namespace transformer {

/// The residual connection around every sub-layer: LayerNorm(x + Dropout(Sublayer(x))) (§3.1, §5.4), or, with
/// normalisation before it, x + Dropout(Sublayer(LayerNorm(x))). Parameters `norm.weight` and `norm.bias` [D].
class ResidualImpl : public torch::nn::Module {
 public:
  /// Of the settings' width, dropout and place of normalisation.
  explicit ResidualImpl(const ModelSettings& settings);
  /// What the sub-layer is given: x itself, or LayerNorm(x).
  torch::Tensor input(const torch::Tensor& x);
  /// x [.., D] and what the sub-layer made of `input(x)`, joined: [.., D].
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& sublayer_output);

  /// The sub-layer with its residual connection: attention of x [B, T, D] over `memory` [B, S, D], over itself where
  /// that is undefined. In training fused wherever that is possible (see fused_layers.h).
  Attended around(MultiHeadAttention& attention, const torch::Tensor& x, const torch::Tensor& memory,
                  AttentionOptions call);
  /// The same of the feed-forward network.
  torch::Tensor around(PositionWise& network, const torch::Tensor& x);

 private:
  /// What a fused sub-layer is wrapped in; none outside training and for parameters that are not float32.
  std::optional<FusedResidual> fused_residual() const;

  bool normalised_before_;
  double dropout_, epsilon_;
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(Residual);

/// The normalisation of a settings' width and epsilon.
torch::nn::LayerNorm layer_norm(const ModelSettings& settings);

/// The attention options that a model's settings ask for.
MultiHeadAttentionOptions attention_options(const ModelSettings& settings);

/// What an encoder is a stack of: EncoderLayer, or a layer of one's own.
class AnyEncoderLayer : public torch::nn::Module {
 public:
  /// x [B, S, D] -> [B, S, D]; `call.mask` broadcastable to [B, H, S, S].
  virtual Attended forward(const torch::Tensor& x, AttentionOptions call) = 0;
};

/// Makes layer `index` of a stack.
using EncoderLayerFactory = std::function<std::shared_ptr<AnyEncoderLayer>(int64_t index)>;

/// Self-attention, then feed-forward (§3.1).
class EncoderLayerImpl : public AnyEncoderLayer {
 public:
  /// With random weights.
  explicit EncoderLayerImpl(const ModelSettings& settings);

  /// The window is set by the layer itself.
  Attended forward(const torch::Tensor& x, AttentionOptions call = {}) override;

 private:
  MultiHeadAttention self_attention_{nullptr};
  std::shared_ptr<PositionWise> feed_forward_;
  int64_t window_;
  Residual after_self_attention_{nullptr}, after_feed_forward_{nullptr};
};
TORCH_MODULE(EncoderLayer);

/// The stack of encoder layers, and with normalisation before the sub-layers a last one of their sum (`norm`).
class EncoderImpl : public torch::nn::Module {
 public:
  /// `layer` makes each of the settings' layers; empty: EncoderLayer. With `call.causal` the stack is a decoder without
  /// memory, a language model's.
  explicit EncoderImpl(const ModelSettings& settings, const EncoderLayerFactory& layer = {});

  /// What the stack returns.
  struct Output {
    torch::Tensor memory;                // [B, S, D]
    std::vector<torch::Tensor> weights;  // a layer each [B, H, S, S], if asked for
  };
  /// x [B, S, D]: embeddings, positions added.
  Output forward(torch::Tensor x, const AttentionOptions& call = {});
  /// See TransformerImpl::set_recompute.
  void set_recompute(bool on) { recompute_ = on; }

 private:
  std::vector<std::shared_ptr<AnyEncoderLayer>> layers_;
  torch::nn::LayerNorm norm_{nullptr};  // null with normalisation after the sub-layers
  bool recompute_ = false;
};
TORCH_MODULE(Encoder);

}  // namespace transformer
