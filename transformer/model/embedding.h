#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "transformer/model/quantization.h"

namespace transformer {

/// Token embeddings times sqrt(D), where they are scaled, and the same matrix as the pre-softmax projection (§3.4).
/// Parameter `weight` [V, D].
class TokenEmbeddingImpl : public torch::nn::Module, public QuantizationAware {
 public:
  /// With random weights of variance 1 / D.
  TokenEmbeddingImpl(int64_t vocabulary_size, int64_t d_model, bool scaled = true);

  /// ids [..] int64 -> [.., D].
  torch::Tensor forward(const torch::Tensor& ids);
  /// hidden [.., D] -> logits [.., V]; `bias` [V] or undefined.
  torch::Tensor project(const torch::Tensor& hidden, const torch::Tensor& bias = {});

  /// [V, D].
  const torch::Tensor& weight() const { return weight_; }
  /// What a row is looked up in and projected by: the weight, in quantization-aware training with rows rounded.
  torch::Tensor used_weight() const { return factor(weight_, is_training()); }
  /// hidden [.., D] as `project` multiplies it: in quantization-aware training with rows rounded.
  torch::Tensor used_hidden(const torch::Tensor& hidden) const { return factor(hidden, is_training()); }
  /// sqrt(D), or 1.
  double scale() const { return scale_; }

 private:
  double scale_;
  torch::Tensor weight_;
};
TORCH_MODULE(TokenEmbedding);

/// The LayerNorm of embeddings with their positions, where there is one (submodule `norm`).
class EmbeddingNormImpl : public torch::nn::Module {
 public:
  /// With gains of 1 and biases of 0; `epsilon` is added to the variance.
  EmbeddingNormImpl(int64_t d_model, double epsilon);

  /// x [.., D] -> [.., D].
  torch::Tensor forward(const torch::Tensor& x) { return norm_->forward(x); }

 private:
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(EmbeddingNorm);

}  // namespace transformer
