#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "transformer/architecture/settings.h"

namespace transformer::test {

/// What is varied, and what may take its place; one of a part's variations at a time.
using Variation = std::pair<std::string, std::function<void(ModelSettings&)>>;
inline std::vector<std::vector<Variation>> varied_parts() {
  using Settings = ModelSettings;
  std::vector<std::vector<Variation>> parts = {
      {{"attention over parameters",
        [](Settings& s) { s.feed_forward = Settings::FeedForward::attention_over_parameters; }},
       {"gelu", [](Settings& s) { s.activation = Settings::Activation::gelu; }},
       {"swiglu", [](Settings& s) { s.activation = Settings::Activation::swiglu; }},
       {"swish", [](Settings& s) { s.activation = Settings::Activation::swish; }}},
      {{"output bias, embeddings as they are", [](Settings& s) { s.output_bias = true, s.scaled_embeddings = false; }}},
      {{"normalised embeddings", [](Settings& s) { s.embedding_normalization = true; }}},
      {{"ssru", [](Settings& s) { s.decoder_self_attention = Settings::DecoderSelfAttention::ssru; }}},
      {{"pre-norm", [](Settings& s) { s.normalization = Settings::Normalization::pre; }}},
      {{"dot product", [](Settings& s) { s.compatibility = Settings::Compatibility::dot_product; }},
       {"additive", [](Settings& s) { s.compatibility = Settings::Compatibility::additive; }}},
      {}};
  for (const int64_t window : {1, 2, 3, 5, 40}) {
    parts.back().emplace_back("window " + std::to_string(window),
                              [window](Settings& s) { s.attention_window = window; });
  }
  return parts;
}

inline ModelSettings plain_settings() {
  ModelSettings plain;
  plain.d_model = 12;
  plain.d_ff = 20;
  plain.heads = 3;
  plain.d_k = 5;
  plain.d_v = 2;
  plain.encoder_layers = plain.decoder_layers = 2;
  plain.dropout = 0;
  plain.vocabulary_size = 19;
  plain.parameter_heads = 2;
  plain.parameter_d_k = 3;
  plain.parameter_d_v = 5;
  plain.parameter_pairs = 7;
  return plain;
}

/// A tiny model in every variation, and in some of them together.
inline std::vector<std::pair<std::string, ModelSettings>> variations() {
  using Settings = ModelSettings;
  std::vector<std::pair<std::string, Settings>> list;
  const auto add = [&](const Variation& variation) {
    auto settings = plain_settings();
    variation.second(settings);
    list.emplace_back(variation.first, settings);
  };
  add({"plain", [](Settings&) {}});
  for (const auto& part : varied_parts()) {
    for (const auto& variation : part) add(variation);
  }
  add({"window, additive, pre-norm, swiglu", [](Settings& s) {
         s.attention_window = 4;
         s.compatibility = Settings::Compatibility::additive;
         s.normalization = Settings::Normalization::pre;
         s.activation = Settings::Activation::swiglu;
         s.projection_bias = true;
       }});
  add({"ssru wider than keys and values, pre-norm", [](Settings& s) {
         s.decoder_self_attention = Settings::DecoderSelfAttention::ssru;
         s.normalization = Settings::Normalization::pre;
         s.heads = 1;
         s.d_k = 3;
         s.d_v = 2;
       }});
  add({"window, dot product, attention over parameters, own matrices", [](Settings& s) {
         s.attention_window = 3;
         s.compatibility = Settings::Compatibility::dot_product;
         s.feed_forward = Settings::FeedForward::attention_over_parameters;
         s.projection_bias = true;
         s.shared_embeddings = Settings::SharedEmbeddings::none;
       }});
  return list;
}

/// Every variation of a part with every one of another part.
inline std::vector<std::pair<std::string, ModelSettings>> pairs_of_variations() {
  std::vector<std::pair<std::string, ModelSettings>> list;
  const auto parts = varied_parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = i + 1; j < parts.size(); ++j) {
      for (const auto& one : parts[i]) {
        for (const auto& other : parts[j]) {
          auto settings = plain_settings();
          one.second(settings);
          other.second(settings);
          list.emplace_back(one.first + ", " + other.first, settings);
        }
      }
    }
  }
  return list;
}

}  // namespace transformer::test
