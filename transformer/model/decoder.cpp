#include "transformer/model/decoder.h"

namespace transformer {

using torch::Tensor;

void DecoderCache::reorder(const Tensor& rows) {
  for (auto& layer : layers) {
    for (auto* tensor : {&layer.self_keys, &layer.self_values, &layer.memory_keys, &layer.memory_values}) {
      if (tensor->defined()) *tensor = tensor->index_select(0, rows);
    }
  }
  if (memory_mask) memory_mask = memory_mask->index_select(0, rows);
}

DecoderLayerImpl::DecoderLayerImpl(const ModelSettings& given) {
  const auto settings = given.resolved();
  self_attention_ = register_module("self_attention", MultiHeadAttention(attention_options(settings)));
  after_self_attention_ = register_module("after_self_attention", Residual(settings));
  memory_attention_ = register_module("memory_attention", MultiHeadAttention(attention_options(settings)));
  after_memory_attention_ = register_module("after_memory_attention", Residual(settings));
  feed_forward_ = register_module("feed_forward", FeedForward(settings.d_model, settings.d_ff));
  after_feed_forward_ = register_module("after_feed_forward", Residual(settings));
}

DecoderLayerImpl::Output DecoderLayerImpl::forward(const Tensor& x, const Tensor& memory,
                                                   const std::optional<Tensor>& memory_mask, bool weights) {
  // Padding follows a sentence's tokens, so the causal mask hides it from all of them.
  auto self = self_attention_->forward(x, x, x, {.mask = {}, .causal = true, .weights = weights});
  auto y = after_self_attention_->forward(x, self.values);
  auto cross = memory_attention_->forward(y, memory, memory, {.mask = memory_mask, .weights = weights});
  auto z = after_memory_attention_->forward(y, cross.values);
  return {after_feed_forward_->forward(z, feed_forward_->forward(z)), self.weights, cross.weights};
}

DecoderCache::Layer DecoderLayerImpl::start(const Tensor& memory) {
  auto heads = memory_attention_->project_memory(memory);
  return {{}, {}, heads.key.contiguous(), heads.value.contiguous()};
}

Tensor DecoderLayerImpl::step(const Tensor& x, DecoderCache::Layer& cache, const std::optional<Tensor>& memory_mask) {
  auto heads = self_attention_->project(x);
  if (cache.self_keys.defined()) {
    heads.key = torch::cat({cache.self_keys, heads.key}, 2);
    heads.value = torch::cat({cache.self_values, heads.value}, 2);
  }
  cache.self_keys = heads.key;
  cache.self_values = heads.value;
  auto y = after_self_attention_->forward(x, self_attention_->attend(heads, {}).values);
  const MultiHeadAttentionImpl::Heads over_memory{memory_attention_->project_query(y), cache.memory_keys,
                                                  cache.memory_values};
  auto z = after_memory_attention_->forward(y, memory_attention_->attend(over_memory, {.mask = memory_mask}).values);
  return after_feed_forward_->forward(z, feed_forward_->forward(z));
}

DecoderImpl::DecoderImpl(const ModelSettings& settings) {
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < settings.decoder_layers; ++i) {
    layers_.emplace_back(settings);
    list->push_back(layers_.back());
  }
  register_module("layers", list);
}

DecoderImpl::Output DecoderImpl::forward(Tensor x, const Tensor& memory, const std::optional<Tensor>& memory_mask,
                                         bool weights) {
  Output output;
  for (auto& layer : layers_) {
    auto decoded = layer->forward(x, memory, memory_mask, weights);
    x = decoded.values;
    if (weights) {
      output.self_weights.push_back(decoded.self_weights);
      output.memory_weights.push_back(decoded.memory_weights);
    }
  }
  output.values = x;
  return output;
}

DecoderCache DecoderImpl::start(const Tensor& memory, const std::optional<Tensor>& memory_mask) {
  DecoderCache cache;
  for (auto& layer : layers_) cache.layers.push_back(layer->start(memory));
  cache.memory_mask = memory_mask;
  return cache;
}

Tensor DecoderImpl::step(Tensor x, DecoderCache& cache) {
  for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i]->step(x, cache.layers[i], cache.memory_mask);
  ++cache.length;
  return x;
}

}  // namespace transformer
