#include "transformer/model/encoder.h"

#include "transformer/model/fused/gpu_layers.h"
#include "transformer/model/fused/sublayer_parts.h"
#include "transformer/model/recompute.h"

namespace transformer {

using torch::Tensor;

torch::nn::LayerNorm layer_norm(const ModelSettings& settings) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({settings.d_model}).eps(settings.layer_norm_epsilon));
}

ResidualImpl::ResidualImpl(const ModelSettings& settings)
    : normalised_before_(settings.normalization == ModelSettings::Normalization::pre),
      dropout_(settings.dropout),
      epsilon_(settings.layer_norm_epsilon) {
  norm_ = register_module("norm", layer_norm(settings));
}

Tensor ResidualImpl::input(const Tensor& x) {
  return normalised_before_ ? norm_->forward(x) : x;
}

Tensor ResidualImpl::forward(const Tensor& x, const Tensor& sublayer_output) {
  auto sum = x + torch::dropout(sublayer_output, dropout_, is_training());
  return normalised_before_ ? sum : norm_->forward(sum);
}

std::optional<FusedResidual> ResidualImpl::fused_residual() const {
  if (!is_training() || !kernels_take({norm_->weight, norm_->bias})) return {};
  return FusedResidual{.gain = norm_->weight,
                       .bias = norm_->bias,
                       .epsilon = epsilon_,
                       .dropout = dropout_,
                       .before = normalised_before_};
}

Attended ResidualImpl::around(MultiHeadAttention& attention, const Tensor& x, const Tensor& memory,
                              AttentionOptions call) {
  const bool on_gpu = fusable_on_gpu(x);
  if (!call.weights && (on_gpu || (fusable(x) && call.window == 0 && fusable_attention(x, memory, call.mask)))) {
    const auto residual = fused_residual();
    const auto projections = attention->fusable_projections();
    if (residual && projections) {
      if (on_gpu) return {attention_on_gpu(x, memory, std::move(call), *projections, *residual), {}};
      return {fused_attention(x, memory, call.mask, call.causal, *projections, *residual), {}};
    }
  }
  const auto query = input(x);
  const auto& keys = memory.defined() ? memory : query;
  auto [values, weights] = attention->forward(query, keys, keys, std::move(call));
  return {forward(x, values), weights};
}

Tensor ResidualImpl::around(PositionWise& network, const Tensor& x) {
  const bool on_gpu = fusable_on_gpu(x);
  if (on_gpu || fusable(x)) {
    const auto residual = fused_residual();
    const auto fused = network.fusable_network();
    if (residual && fused) {
      return on_gpu ? feed_forward_on_gpu(x, *fused, *residual) : fused_feed_forward(x, *fused, *residual);
    }
  }
  return forward(x, network.forward(input(x)));
}

MultiHeadAttentionOptions attention_options(const ModelSettings& settings) {
  return {.d_model = settings.d_model,
          .heads = settings.heads,
          .d_k = settings.d_k,
          .d_v = settings.d_v,
          .dropout = settings.attention_dropout,
          .bias = settings.projection_bias,
          .compatibility = settings.compatibility};
}

EncoderLayerImpl::EncoderLayerImpl(const ModelSettings& given) : window_(given.attention_window) {
  const auto settings = given.resolved();
  self_attention_ = register_module("self_attention", MultiHeadAttention(attention_options(settings)));
  after_self_attention_ = register_module("after_self_attention", Residual(settings));
  feed_forward_ = register_module("feed_forward", position_wise(settings));
  after_feed_forward_ = register_module("after_feed_forward", Residual(settings));
}

Attended EncoderLayerImpl::forward(const Tensor& x, AttentionOptions call) {
  call.window = window_;
  auto [y, weights] = after_self_attention_->around(self_attention_, x, {}, std::move(call));
  return {after_feed_forward_->around(*feed_forward_, y), weights};
}

EncoderImpl::EncoderImpl(const ModelSettings& settings, const EncoderLayerFactory& layer) {
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < settings.encoder_layers; ++i) {
    layers_.push_back(layer ? layer(i) : std::make_shared<EncoderLayerImpl>(settings));
    list->push_back(std::static_pointer_cast<torch::nn::Module>(layers_.back()));
  }
  register_module("layers", list);
  if (settings.normalization == ModelSettings::Normalization::pre) {
    norm_ = register_module("norm", layer_norm(settings));
  }
}

EncoderImpl::Output EncoderImpl::forward(Tensor x, const AttentionOptions& call) {
  Output output;
  for (auto& layer : layers_) {
    if (recompute_ && is_training() && !call.weights) {
      const auto forward = [layer, call, training = layer->is_training()](const Tensor& input, const Tensor&) {
        check_mode(*layer, training);
        return layer->forward(input, call).values;
      };
      x = recomputed(forward, x);
      continue;
    }
    auto [values, weights] = layer->forward(x, call);
    x = values;
    if (call.weights) output.weights.push_back(weights);
  }
  output.memory = norm_ ? norm_->forward(x) : x;
  return output;
}

}  // namespace transformer
