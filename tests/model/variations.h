#pragma once

#include <string>
#include <utility>
#include <vector>

#include "transformer/architecture/settings.h"

namespace transformer::test {

/// A tiny model in every variation, and in some of them together.
inline std::vector<std::pair<std::string, ModelSettings>> variations() {
  using Settings = ModelSettings;
  Settings plain;
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
  std::vector<std::pair<std::string, Settings>> list;
  const auto add = [&](const std::string& name, auto change) {
    auto settings = plain;
    change(settings);
    list.emplace_back(name, settings);
  };
  const auto parameters = Settings::FeedForward::attention_over_parameters;
  add("plain", [](Settings&) {});
  add("attention over parameters", [&](Settings& s) { s.feed_forward = parameters; });
  add("gelu", [](Settings& s) { s.activation = Settings::Activation::gelu; });
  add("swiglu", [](Settings& s) { s.activation = Settings::Activation::swiglu; });
  add("pre-norm", [](Settings& s) { s.normalization = Settings::Normalization::pre; });
  add("dot product", [](Settings& s) { s.compatibility = Settings::Compatibility::dot_product; });
  add("additive", [](Settings& s) { s.compatibility = Settings::Compatibility::additive; });
  for (const int64_t window : {1, 2, 3, 5, 40}) {
    add("window " + std::to_string(window), [&](Settings& s) { s.attention_window = window; });
  }
  add("window, additive, pre-norm, swiglu", [](Settings& s) {
    s.attention_window = 4;
    s.compatibility = Settings::Compatibility::additive;
    s.normalization = Settings::Normalization::pre;
    s.activation = Settings::Activation::swiglu;
    s.projection_bias = true;
  });
  add("window, dot product, attention over parameters, own matrices", [&](Settings& s) {
    s.attention_window = 3;
    s.compatibility = Settings::Compatibility::dot_product;
    s.feed_forward = parameters;
    s.projection_bias = true;
    s.shared_embeddings = Settings::SharedEmbeddings::none;
  });
  return list;
}

}  // namespace transformer::test
