#include "transformer/architecture/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "transformer/base/error.h"

namespace transformer {

MatrixFlops count_flops(const ModelSettings& given, const BatchShape& batch) {
  const auto s = given.resolved();
  const int64_t source = batch.rows * batch.source_length, target = batch.rows * batch.target_length;  // tokens
  const int64_t head_widths = s.heads * (s.d_k + s.d_v);
  MatrixFlops flops;
  const int64_t layer_tokens = s.encoder_layers * source + s.decoder_layers * target;
  const bool recurrent = s.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru;
  const int64_t self_attending_layers = recurrent ? 0 : s.decoder_layers;  // of the decoder
  const int64_t self_tokens = s.encoder_layers * source + self_attending_layers * target;
  const int64_t memory_tokens = s.decoder_layers * (source + target);
  flops.attention_projections = 2 * s.d_model * head_widths * (2 * self_tokens + memory_tokens);
  if (recurrent) flops.attention_projections += 2 * s.decoder_layers * target * 2 * s.d_model * s.d_model;
  if (s.compatibility == ModelSettings::Compatibility::additive) {
    flops.attention_projections += 2 * s.heads * s.d_k * s.d_k * (2 * self_tokens + memory_tokens);
  }
  const auto seen = [&](int64_t length) {
    return s.attention_window > 0 ? std::min(length, 2 * (s.attention_window / 2) + 1) : length;
  };
  flops.attention_products =
      2 * head_widths *
      (s.encoder_layers * source * seen(batch.source_length) +
       self_attending_layers * target * seen(batch.target_length) + s.decoder_layers * target * batch.source_length);
  if (s.feed_forward == ModelSettings::FeedForward::attention_over_parameters) {
    const int64_t widths = s.parameter_heads * (s.parameter_d_k + s.parameter_d_v);
    flops.feed_forward = 2 * widths * (s.d_model + s.parameter_pairs) * layer_tokens;
  } else {
    const int64_t matrices = s.activation == ModelSettings::Activation::swiglu ? 3 : 2;
    flops.feed_forward = 2 * matrices * s.d_model * s.d_ff * layer_tokens;
  }
  const int64_t projected = batch.projected_tokens > 0 ? batch.projected_tokens : target;
  flops.vocabulary_projection = 2 * s.d_model * s.target_vocabulary_size * projected;
  return flops;
}

double sustained_flops(const std::string& gpu) {
  std::vector<std::string> names;
  for (const auto& [name, flops] : paper_gpus) {
    if (gpu == name) return flops;
    names.emplace_back(name);
  }
  throw Error(fmt::format("GPU '{}'", gpu), "is none of those whose speed the paper gives",
              fmt::format("write one of {}", fmt::join(names, ", ")));
}

double paper_training_cost(double seconds, int64_t gpus, double sustained_flops_each) {
  return seconds * static_cast<double>(gpus) * sustained_flops_each;
}

}  // namespace transformer
