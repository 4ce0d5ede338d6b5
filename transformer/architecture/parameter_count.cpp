#include "transformer/architecture/parameter_count.h"

#include <fmt/format.h>

#include <initializer_list>

#include "transformer/base/checked.h"
#include "transformer/base/error.h"

namespace transformer {

int64_t parameter_count(const ModelSettings& s) {
  int64_t count = 0;
  const auto add = [&](std::initializer_list<int64_t> sizes) {
    const auto product = checked_product(sizes);
    if (!product || *product > most_parameters || (count += *product) > most_parameters) {
      throw Error("model",
                  fmt::format("these settings make more than {} billion parameters (d_model {}, d_ff {}, heads {}, d_k "
                              "{}, d_v {}, layers {} and {}, vocabularies {} and {})",
                              most_parameters / 1'000'000'000, s.d_model, s.d_ff, s.heads, s.d_k, s.d_v,
                              s.encoder_layers, s.decoder_layers, s.source_vocabulary_size, s.target_vocabulary_size),
                  "make the model smaller");
    }
  };
  using Shared = ModelSettings::SharedEmbeddings;
  add({s.target_vocabulary_size, s.d_model});
  if (s.shared_embeddings != Shared::all) add({s.source_vocabulary_size, s.d_model});
  if (s.shared_embeddings == Shared::none) add({s.target_vocabulary_size, s.d_model});
  if (s.positions == ModelSettings::Positions::learned) add({2, s.max_positions, s.d_model});

  const int64_t attentions = s.encoder_layers + 2 * s.decoder_layers, layers = s.encoder_layers + s.decoder_layers;
  add({attentions, 2, s.heads, s.d_k, s.d_model});  // queries and keys
  add({attentions, 2, s.heads, s.d_v, s.d_model});  // values and output
  if (s.projection_bias) {
    add({attentions, 2, s.heads, s.d_k});
    add({attentions, s.heads, s.d_v});
    add({attentions, s.d_model});
  }
  if (s.compatibility == ModelSettings::Compatibility::additive) {
    add({attentions, 2, s.heads, s.d_k, s.d_k});
    add({attentions, s.heads, s.d_k});
  }
  if (s.feed_forward == ModelSettings::FeedForward::attention_over_parameters) {
    for (const int64_t width : {s.parameter_d_k, s.parameter_d_v}) {
      add({layers, s.parameter_heads, width, s.d_model});
      add({layers, s.parameter_heads, s.parameter_pairs, width});
    }
    if (s.projection_bias) {
      add({layers, s.parameter_heads, s.parameter_d_k});
      add({layers, s.d_model});
    }
  } else {
    const int64_t inner = s.activation == ModelSettings::Activation::swiglu ? 2 : 1;  // matrices that widen
    add({layers, inner + 1, s.d_ff, s.d_model});
    add({layers, inner, s.d_ff});
    add({layers, s.d_model});
  }
  add({attentions + layers, 2, s.d_model});  // normalisation after each sub-layer, or before it
  if (s.normalization == ModelSettings::Normalization::pre) add({2, 2, s.d_model});
  return count;
}

}  // namespace transformer
