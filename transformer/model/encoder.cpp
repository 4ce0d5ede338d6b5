#include "transformer/model/encoder.h"

namespace transformer {

using torch::Tensor;

ResidualImpl::ResidualImpl(const ModelSettings& settings) : dropout_(settings.dropout) {
  norm_ = register_module(
      "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({settings.d_model}).eps(settings.layer_norm_epsilon)));
}

Tensor ResidualImpl::forward(const Tensor& x, const Tensor& sublayer_output) {
  return norm_->forward(x + torch::dropout(sublayer_output, dropout_, is_training()));
}

MultiHeadAttentionOptions attention_options(const ModelSettings& settings) {
  return {.d_model = settings.d_model,
          .heads = settings.heads,
          .d_k = settings.d_k,
          .d_v = settings.d_v,
          .dropout = settings.attention_dropout,
          .bias = settings.projection_bias};
}

EncoderLayerImpl::EncoderLayerImpl(const ModelSettings& given) {
  const auto settings = given.resolved();
  self_attention_ = register_module("self_attention", MultiHeadAttention(attention_options(settings)));
  after_self_attention_ = register_module("after_self_attention", Residual(settings));
  feed_forward_ = register_module("feed_forward", FeedForward(settings.d_model, settings.d_ff));
  after_feed_forward_ = register_module("after_feed_forward", Residual(settings));
}

Attended EncoderLayerImpl::forward(const Tensor& x, const AttentionOptions& call) {
  auto [attended, weights] = self_attention_->forward(x, x, x, call);
  auto y = after_self_attention_->forward(x, attended);
  return {after_feed_forward_->forward(y, feed_forward_->forward(y)), weights};
}

EncoderImpl::EncoderImpl(const ModelSettings& settings) {
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < settings.encoder_layers; ++i) {
    layers_.emplace_back(settings);
    list->push_back(layers_.back());
  }
  register_module("layers", list);
}

EncoderImpl::Output EncoderImpl::forward(Tensor x, const AttentionOptions& call) {
  Output output;
  for (auto& layer : layers_) {
    auto [values, weights] = layer->forward(x, call);
    x = values;
    if (call.weights) output.weights.push_back(weights);
  }
  output.memory = x;
  return output;
}

}  // namespace transformer
