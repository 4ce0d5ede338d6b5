#include "transformer/architecture/parameter_count.h"

#include <fmt/format.h>

#include <initializer_list>

#include "transformer/base/checked.h"
#include "transformer/base/error.h"

namespace transformer {

std::map<std::string, int64_t> parameter_counts(const ModelSettings& s) {
  std::map<std::string, int64_t> counts;
  int64_t count = 0;
  const auto add = [&](const std::string& part, std::initializer_list<int64_t> sizes) {
    const auto product = checked_product(sizes);
    if (!product || *product > most_parameters || (count += *product) > most_parameters) {
      throw Error("model",
                  fmt::format("these settings make more than {} billion parameters (d_model {}, d_ff {}, heads {}, d_k "
                              "{}, d_v {}, layers {} and {}, vocabularies {} and {})",
                              most_parameters / 1'000'000'000, s.d_model, s.d_ff, s.heads, s.d_k, s.d_v,
                              s.encoder_layers, s.decoder_layers, s.source_vocabulary_size, s.target_vocabulary_size),
                  "make the model smaller");
    }
    counts[part] += *product;
  };
  using Shared = ModelSettings::SharedEmbeddings;
  if (s.shared_embeddings == Shared::all) {
    add("embedding", {s.target_vocabulary_size, s.d_model});
  } else {
    add("source_embedding", {s.source_vocabulary_size, s.d_model});
    add("target_embedding", {s.target_vocabulary_size, s.d_model});
  }
  if (s.shared_embeddings == Shared::none) add("projection", {s.target_vocabulary_size, s.d_model});
  if (s.positions == ModelSettings::Positions::learned) {
    add("source_positions", {s.max_positions, s.d_model});
    add("target_positions", {s.max_positions, s.d_model});
  }

  const auto add_stack = [&](const std::string& stack, int64_t layers, int64_t attentions_in_each) {
    const int64_t attentions = layers * attentions_in_each;
    const auto add_to_stack = [&](std::initializer_list<int64_t> sizes) { add(stack, sizes); };
    add_to_stack({attentions, 2, s.heads, s.d_k, s.d_model});  // queries and keys
    add_to_stack({attentions, 2, s.heads, s.d_v, s.d_model});  // values and output
    if (s.projection_bias) {
      add_to_stack({attentions, 2, s.heads, s.d_k});
      add_to_stack({attentions, s.heads, s.d_v});
      add_to_stack({attentions, s.d_model});
    }
    if (s.compatibility == ModelSettings::Compatibility::additive) {
      add_to_stack({attentions, 2, s.heads, s.d_k, s.d_k});
      add_to_stack({attentions, s.heads, s.d_k});
    }
    if (s.feed_forward == ModelSettings::FeedForward::attention_over_parameters) {
      for (const int64_t width : {s.parameter_d_k, s.parameter_d_v}) {
        add_to_stack({layers, s.parameter_heads, width, s.d_model});
        add_to_stack({layers, s.parameter_heads, s.parameter_pairs, width});
      }
      if (s.projection_bias) {
        add_to_stack({layers, s.parameter_heads, s.parameter_d_k});
        add_to_stack({layers, s.d_model});
      }
    } else {
      const int64_t inner = s.activation == ModelSettings::Activation::swiglu ? 2 : 1;  // matrices that widen
      add_to_stack({layers, inner + 1, s.d_ff, s.d_model});
      add_to_stack({layers, inner, s.d_ff});
      add_to_stack({layers, s.d_model});
    }
    add_to_stack({attentions + layers, 2, s.d_model});  // normalisation after each sub-layer, or before it
    if (s.normalization == ModelSettings::Normalization::pre) add_to_stack({2, s.d_model});
  };
  add_stack("encoder", s.encoder_layers, 1);
  add_stack("decoder", s.decoder_layers, 2);
  return counts;
}

int64_t parameter_count(const ModelSettings& settings) {
  int64_t count = 0;
  for (const auto& [part, parameters] : parameter_counts(settings)) count += parameters;
  return count;
}

}  // namespace transformer
