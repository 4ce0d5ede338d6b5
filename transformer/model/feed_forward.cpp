#include "transformer/model/feed_forward.h"

#include <torch/nn/init.h>

#include "transformer/model/fused/sublayer_parts.h"
#include "transformer/model/parameter_attention.h"

namespace transformer {

using torch::Tensor;

std::shared_ptr<PositionWise> position_wise(const ModelSettings& settings) {
  if (settings.feed_forward == ModelSettings::FeedForward::attention_over_parameters) {
    return std::make_shared<ParameterAttentionImpl>(ParameterAttentionOptions{.d_model = settings.d_model,
                                                                              .heads = settings.parameter_heads,
                                                                              .d_k = settings.parameter_d_k,
                                                                              .d_v = settings.parameter_d_v,
                                                                              .pairs = settings.parameter_pairs,
                                                                              .dropout = settings.attention_dropout,
                                                                              .bias = settings.projection_bias});
  }
  return std::make_shared<FeedForwardImpl>(settings.d_model, settings.d_ff, settings.activation, settings.relu_dropout);
}

FeedForwardImpl::FeedForwardImpl(int64_t d_model, int64_t d_ff, Activation activation, double dropout)
    : activation_(activation), dropout_(dropout) {
  inner_ = register_module("inner", torch::nn::Linear(d_model, d_ff));
  outer_ = register_module("outer", torch::nn::Linear(d_ff, d_model));
  if (activation == Activation::swiglu) gate_ = register_module("gate", torch::nn::Linear(d_model, d_ff));
  for (auto& linear : {inner_, outer_, gate_}) {
    if (!linear) continue;
    torch::nn::init::xavier_uniform_(linear->weight);
    torch::nn::init::zeros_(linear->bias);
  }
}

Tensor FeedForwardImpl::product(const torch::nn::Linear& layer, const Tensor& x) const {
  return linear(x, layer->weight, layer->bias, is_training());
}

Tensor FeedForwardImpl::activated(const Tensor& x) const {
  switch (activation_) {
    case Activation::gelu:
      return torch::gelu(product(inner_, x));
    case Activation::swiglu:
      return torch::silu(product(gate_, x)) * product(inner_, x);
    case Activation::swish:
      return torch::silu(product(inner_, x));
    case Activation::relu:
      break;
  }
  // In place it would cost two copies on the way back, since the product is a view of what it is made in.
  const auto hidden = product(inner_, x);
  return at::GradMode::is_enabled() ? hidden.relu() : hidden.relu_();
}

std::optional<FusedNetwork> FeedForwardImpl::fusable_network() const {
  if (activation_ != Activation::relu || quantized()) return {};
  if (!kernels_take({inner_->weight, inner_->bias, outer_->weight, outer_->bias})) return {};
  return FusedNetwork{.inner_weight = inner_->weight,
                      .inner_bias = inner_->bias,
                      .outer_weight = outer_->weight,
                      .outer_bias = outer_->bias,
                      .dropout = dropout_};
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  auto hidden = activated(x);
  if (dropout_ > 0) hidden = torch::dropout(hidden, dropout_, is_training());
  return product(outer_, hidden);
}

}  // namespace transformer
