#include "transformer/interop/marian.h"

#include <fmt/format.h>

#include <cstddef>

namespace transformer {

std::vector<int64_t> marian_width(int64_t d_model) {
  const int64_t sines = (d_model + 1) / 2;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < d_model; ++i) order.push_back(i / 2 + (i % 2 == 0 ? 0 : sines));
  return order;
}

std::vector<int64_t> inverse(std::span<const int64_t> order) {
  std::vector<int64_t> result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return result;
}

std::vector<float> permuted_rows(std::span<const float> numbers, int64_t width, std::span<const int64_t> order) {
  std::vector<float> result;
  result.reserve(order.size() * static_cast<size_t>(width));
  for (const int64_t row : order) {
    const auto from = numbers.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
    result.insert(result.end(), from.begin(), from.end());
  }
  return result;
}

std::vector<float> permuted_columns(std::span<const float> numbers, int64_t rows, std::span<const int64_t> order) {
  std::vector<float> result;
  result.reserve(static_cast<size_t>(rows) * order.size());
  for (int64_t row = 0; row < rows; ++row) {
    const auto from = numbers.subspan(static_cast<size_t>(row) * (numbers.size() / static_cast<size_t>(rows)));
    for (const int64_t column : order) result.push_back(from[static_cast<size_t>(column)]);
  }
  return result;
}

void convert_marian_layers(const ModelSettings& settings, const SublayerConversion& conversion) {
  for (int64_t i = 0; i < settings.encoder_layers; ++i) {
    const auto ours = fmt::format("encoder.layers.{}.", i), theirs = fmt::format("model.encoder.layers.{}.", i);
    conversion.attention(ours + "self_attention", theirs + "self_attn");
    conversion.norm(ours + "after_self_attention", theirs + "self_attn_layer_norm");
    conversion.feed_forward(ours, theirs);
  }
  for (int64_t i = 0; i < settings.decoder_layers; ++i) {
    const auto ours = fmt::format("decoder.layers.{}.", i), theirs = fmt::format("model.decoder.layers.{}.", i);
    conversion.attention(ours + "self_attention", theirs + "self_attn");
    conversion.norm(ours + "after_self_attention", theirs + "self_attn_layer_norm");
    conversion.attention(ours + "memory_attention", theirs + "encoder_attn");
    conversion.norm(ours + "after_memory_attention", theirs + "encoder_attn_layer_norm");
    conversion.feed_forward(ours, theirs);
  }
}

}  // namespace transformer
