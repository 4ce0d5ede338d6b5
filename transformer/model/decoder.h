#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "transformer/model/cached_positions.h"
#include "transformer/model/encoder.h"
#include "transformer/model/recurrent_unit.h"

namespace transformer {

/// Keys and values that decoding has computed already. With an attention window r the cache keeps those of a position
/// and of the r/2 before it, all that it sees.
struct DecoderCache {
  /// Of a layer. One of one's own leaves undefined what it does not need.
  struct Layer {
    CachedPositions self_keys, self_values;    // [N, H, t, d_k], [N, H, t, d_v]
    torch::Tensor memory_keys, memory_values;  // [N, H, S, d_k], [N, H, S, d_v]
    torch::Tensor state = {};                  // of a recurrent unit [N, D], which has no keys and values
  };
  std::vector<Layer> layers;                 // from the first on
  std::optional<torch::Tensor> memory_mask;  // [N, 1, 1, S]; none where no row is padded
  int64_t length = 0;                        // tokens decoded so far
  torch::Tensor spare;                       // what the last reordering gave up, to be written into by the next

  /// Replaces row i by row `rows[i]` (int64) in everything: hypotheses reordered, repeated, dropped. Without `memory`
  /// only in what was decoded, for where each new row is of the sentence that the old one was of.
  void reorder(const torch::Tensor& rows, bool memory = true);
};

/// What a decoder is a stack of: DecoderLayer, or a layer of one's own.
class AnyDecoderLayer : public torch::nn::Module {
 public:
  /// What a layer returns.
  struct Output {
    torch::Tensor values;          // [B, T, D]
    torch::Tensor self_weights;    // [B, H, T, T], if asked for and the layer attends to itself
    torch::Tensor memory_weights;  // [B, H, T, S], if asked for
  };
  /// x [B, T, D], memory [B, S, D]; `memory_mask` broadcastable to [B, H, T, S].
  virtual Output forward(const torch::Tensor& x, const torch::Tensor& memory,
                         const std::optional<torch::Tensor>& memory_mask, bool weights) = 0;

  /// Projects the memory once for all steps.
  virtual DecoderCache::Layer start(const torch::Tensor& memory) = 0;
  /// One position x [N, 1, D]; appends its key and value to the cache.
  virtual torch::Tensor step(const torch::Tensor& x, DecoderCache::Layer& cache,
                             const std::optional<torch::Tensor>& memory_mask) = 0;
};

/// Makes layer `index` of a stack.
using DecoderLayerFactory = std::function<std::shared_ptr<AnyDecoderLayer>(int64_t index)>;

/// Causal self-attention, or a recurrent unit in its place, attention over the encoder's output, then feed-forward
/// (§3.1).
class DecoderLayerImpl : public AnyDecoderLayer {
 public:
  /// With random weights.
  explicit DecoderLayerImpl(const ModelSettings& settings);

  Output forward(const torch::Tensor& x, const torch::Tensor& memory,
                 const std::optional<torch::Tensor>& memory_mask = {}, bool weights = false) override;
  DecoderCache::Layer start(const torch::Tensor& memory) override;
  torch::Tensor step(const torch::Tensor& x, DecoderCache::Layer& cache,
                     const std::optional<torch::Tensor>& memory_mask) override;

 private:
  RecurrentUnit recurrence_{nullptr};           // null where there is self-attention
  MultiHeadAttention self_attention_{nullptr};  // null where there is recurrence
  MultiHeadAttention memory_attention_{nullptr};
  std::shared_ptr<PositionWise> feed_forward_;
  int64_t window_;
  Residual after_self_attention_{nullptr}, after_memory_attention_{nullptr}, after_feed_forward_{nullptr};
};
TORCH_MODULE(DecoderLayer);

/// The stack of decoder layers, and with normalisation before the sub-layers a last one of their sum (`norm`).
class DecoderImpl : public torch::nn::Module {
 public:
  /// `layer` makes each of the settings' layers; empty: DecoderLayer.
  explicit DecoderImpl(const ModelSettings& settings, const DecoderLayerFactory& layer = {});

  /// What the stack returns.
  struct Output {
    torch::Tensor values;                                     // [B, T, D]
    std::vector<torch::Tensor> self_weights, memory_weights;  // a layer each, if asked for; undefined: see there
  };
  /// x [B, T, D]: embeddings, positions added; memory [B, S, D] and its mask as AnyDecoderLayer has them.
  Output forward(torch::Tensor x, const torch::Tensor& memory, const std::optional<torch::Tensor>& memory_mask = {},
                 bool weights = false);

  /// A cache of no position, with the memory's keys and values.
  DecoderCache start(const torch::Tensor& memory, const std::optional<torch::Tensor>& memory_mask);
  /// One position x [N, 1, D] -> [N, 1, D]; the cache grows by it.
  torch::Tensor step(torch::Tensor x, DecoderCache& cache);
  /// See TransformerImpl::set_recompute.
  void set_recompute(bool on) { recompute_ = on; }

 private:
  std::vector<std::shared_ptr<AnyDecoderLayer>> layers_;
  torch::nn::LayerNorm norm_{nullptr};  // null with normalisation after the sub-layers
  bool recompute_ = false;
};
TORCH_MODULE(Decoder);

}  // namespace transformer
