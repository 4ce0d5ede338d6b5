#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

#include "transformer/architecture/settings.h"
#include "transformer/model/fused/fused_layers.h"
#include "transformer/model/quantization.h"

namespace transformer {

/// The sub-layer after attention: the same function at every position, [.., D] -> [.., D].
class PositionWise : public torch::nn::Module, public QuantizationAware {
 public:
  /// x [.., D] -> [.., D].
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  /// What a fused sub-layer computes with; none where there is no fused one for this function and its parameters' type.
  virtual std::optional<FusedNetwork> fusable_network() const { return {}; }
};

/// The one that a model's settings ask for.
std::shared_ptr<PositionWise> position_wise(const ModelSettings& settings);

/// FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (§3.3, eq. 2), or with GELU (by the error function) for max(0, ·).
/// Parameters `inner` (W_1, b_1) and `outer` (W_2, b_2): 2 D d_ff weights, d_ff + D biases.
///
/// Swish, x / (1 + exp(-x)), may take its place, too.
///
/// SwiGLU (Shazeer 2020): (silu(x W_3 + b_3) · (x W_1 + b_1)) W_2 + b_2, with the third matrix `gate`: 3 D d_ff
/// weights, 2 d_ff + D biases.
class FeedForwardImpl : public PositionWise {
 public:
  /// What is between the matrices.
  using Activation = ModelSettings::Activation;

  /// `dropout`: on what the activation returns, in training.
  FeedForwardImpl(int64_t d_model, int64_t d_ff, Activation activation = Activation::relu, double dropout = 0);
  /// x [.., D] -> [.., D].
  torch::Tensor forward(const torch::Tensor& x) override;
  std::optional<FusedNetwork> fusable_network() const override;

 private:
  /// `layer` of x.
  torch::Tensor product(const torch::nn::Linear& layer, const torch::Tensor& x) const;
  torch::Tensor activated(const torch::Tensor& x) const;

  Activation activation_;
  double dropout_;
  torch::nn::Linear inner_{nullptr}, outer_{nullptr}, gate_{nullptr};
};
TORCH_MODULE(FeedForward);

}  // namespace transformer
