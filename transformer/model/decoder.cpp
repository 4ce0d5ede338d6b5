#include "transformer/model/decoder.h"

#include "transformer/model/recompute.h"

namespace transformer {

using torch::Tensor;

void DecoderCache::reorder(const Tensor& rows, bool memory) {
  const auto follow = [&](Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.index_select(0, rows);
  };
  for (auto& layer : layers) {
    layer.self_keys.reorder(rows, spare);
    layer.self_values.reorder(rows, spare);
    follow(layer.state);
    if (!memory) continue;
    follow(layer.memory_keys);
    follow(layer.memory_values);
  }
  if (memory && memory_mask) memory_mask = memory_mask->index_select(0, rows);
}

DecoderLayerImpl::DecoderLayerImpl(const ModelSettings& given) : window_(given.attention_window) {
  const auto settings = given.resolved();
  if (settings.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru) {
    recurrence_ = register_module("recurrence", RecurrentUnit(settings.d_model));
  } else {
    self_attention_ = register_module("self_attention", MultiHeadAttention(attention_options(settings)));
  }
  after_self_attention_ = register_module("after_self_attention", Residual(settings));
  memory_attention_ = register_module("memory_attention", MultiHeadAttention(attention_options(settings)));
  after_memory_attention_ = register_module("after_memory_attention", Residual(settings));
  feed_forward_ = register_module("feed_forward", position_wise(settings));
  after_feed_forward_ = register_module("after_feed_forward", Residual(settings));
}

DecoderLayerImpl::Output DecoderLayerImpl::forward(const Tensor& x, const Tensor& memory,
                                                   const std::optional<Tensor>& memory_mask, bool weights) {
  Attended self;
  if (recurrence_) {
    self.values = after_self_attention_->forward(x, recurrence_->forward(after_self_attention_->input(x)));
  } else {
    // Padding follows a sentence's tokens, so the causal mask hides it from all of them.
    self = after_self_attention_->around(self_attention_, x, {},
                                         {.mask = {}, .causal = true, .weights = weights, .window = window_});
  }
  const auto cross = after_memory_attention_->around(memory_attention_, self.values, memory,
                                                     {.mask = memory_mask, .weights = weights});
  return {after_feed_forward_->around(*feed_forward_, cross.values), self.weights, cross.weights};
}

DecoderCache::Layer DecoderLayerImpl::start(const Tensor& memory) {
  auto heads = memory_attention_->project_memory(memory);
  const int64_t seen = window_ > 0 ? window_ / 2 + 1 : 0;  // of the positions up to one's own
  return {CachedPositions(seen), CachedPositions(seen), heads.key.contiguous(), heads.value.contiguous()};
}

Tensor DecoderLayerImpl::step(const Tensor& x, DecoderCache::Layer& cache, const std::optional<Tensor>& memory_mask) {
  const auto input = after_self_attention_->input(x);
  Tensor before;
  if (recurrence_) {
    before = recurrence_->step(input, cache.state);
  } else {
    auto heads = self_attention_->project(input);
    cache.self_keys.append(heads.key);
    cache.self_values.append(heads.value);
    heads.key = cache.self_keys.positions();
    heads.value = cache.self_values.positions();
    before = self_attention_->attend(heads, {}).values;
  }
  auto y = after_self_attention_->forward(x, before);
  const MultiHeadAttentionImpl::Heads over_memory{memory_attention_->project_query(after_memory_attention_->input(y)),
                                                  cache.memory_keys, cache.memory_values};
  auto z = after_memory_attention_->forward(y, memory_attention_->attend(over_memory, {.mask = memory_mask}).values);
  return after_feed_forward_->forward(z, feed_forward_->forward(after_feed_forward_->input(z)));
}

DecoderImpl::DecoderImpl(const ModelSettings& settings, const DecoderLayerFactory& layer) {
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < settings.decoder_layers; ++i) {
    layers_.push_back(layer ? layer(i) : std::make_shared<DecoderLayerImpl>(settings));
    list->push_back(std::static_pointer_cast<torch::nn::Module>(layers_.back()));
  }
  register_module("layers", list);
  if (settings.normalization == ModelSettings::Normalization::pre) {
    norm_ = register_module("norm", layer_norm(settings));
  }
}

DecoderImpl::Output DecoderImpl::forward(Tensor x, const Tensor& memory, const std::optional<Tensor>& memory_mask,
                                         bool weights) {
  Output output;
  for (auto& layer : layers_) {
    if (recompute_ && is_training() && !weights) {
      const auto forward = [layer, memory_mask, training = layer->is_training()](const Tensor& input,
                                                                                 const Tensor& encoded) {
        check_mode(*layer, training);
        return layer->forward(input, encoded, memory_mask, /*weights=*/false).values;
      };
      x = recomputed(forward, x, memory);
      continue;
    }
    auto decoded = layer->forward(x, memory, memory_mask, weights);
    x = decoded.values;
    if (weights) {
      output.self_weights.push_back(decoded.self_weights);
      output.memory_weights.push_back(decoded.memory_weights);
    }
  }
  output.values = norm_ ? norm_->forward(x) : x;
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
  return norm_ ? norm_->forward(x) : x;
}

}  // namespace transformer
