#include "transformer/model/settings.h"

#include <fmt/format.h>

#include <initializer_list>
#include <tuple>

#include "transformer/base/error.h"

namespace transformer {

void ModelSettings::describe(Fields<ModelSettings>& field) {
  field("d_model", &ModelSettings::d_model, "width of embeddings and of every sub-layer's output (§3.1)", at_least(1));
  field("d_ff", &ModelSettings::d_ff, "inner width of the feed-forward sub-layers (§3.3)", at_least(1));
  field("heads", &ModelSettings::heads, "attention heads h (§3.2.2)", at_least(1));
  field("d_k", &ModelSettings::d_k, "width of a head's queries and keys; 0: d_model / heads", at_least(0));
  field("d_v", &ModelSettings::d_v, "width of a head's values; 0: d_model / heads", at_least(0));
  field.pair("layers", {"encoder_layers", "decoder_layers"}, "sets encoder_layers and decoder_layers");
  field("encoder_layers", &ModelSettings::encoder_layers, "layers of the encoder, N (§3.1)", at_least(1));
  field("decoder_layers", &ModelSettings::decoder_layers, "layers of the decoder, N (§3.1)", at_least(1));
  field("dropout", &ModelSettings::dropout,
        "P_drop on every sub-layer's output and on the sums of embeddings and positions (§5.4)", fraction());
  field("attention_dropout", &ModelSettings::attention_dropout, "dropout on the attention weights", fraction());
  field("positions", &ModelSettings::positions, "positional encoding (§3.5, Table 3 E)",
        {{"sinusoidal", Positions::sinusoidal}, {"learned", Positions::learned}});
  field("max_positions", &ModelSettings::max_positions, "positions that are learned (positions: learned)", at_least(1));
  field("vocabulary_size", &ModelSettings::vocabulary_size, "word pieces in the vocabulary (§5.1)", at_least(5));
  field("source_vocabulary_size", &ModelSettings::source_vocabulary_size,
        "word pieces of the source's own vocabulary; 0: vocabulary_size", at_least(0));
  field("target_vocabulary_size", &ModelSettings::target_vocabulary_size,
        "word pieces of the target's own vocabulary; 0: vocabulary_size", at_least(0));
  field("shared_embeddings", &ModelSettings::shared_embeddings,
        "all: one matrix for source, target and pre-softmax projection (§3.4); target: one for target and projection; "
        "none: three matrices",
        {{"all", SharedEmbeddings::all}, {"target", SharedEmbeddings::target}, {"none", SharedEmbeddings::none}});
  field("projection_bias", &ModelSettings::projection_bias,
        "biases in the attention projections; the paper's parameter counts have none");
  field("layer_norm_epsilon", &ModelSettings::layer_norm_epsilon, "epsilon of layer normalisation", more_than(0.0));
}

ModelSettings ModelSettings::resolved() const {
  ModelSettings settings = *this;
  const std::initializer_list<std::tuple<const char*, int64_t, int64_t>> sizes = {
      {"d_model", d_model, 1},
      {"d_ff", d_ff, 1},
      {"heads", heads, 1},
      {"d_k", d_k, 0},
      {"d_v", d_v, 0},
      {"encoder_layers", encoder_layers, 1},
      {"decoder_layers", decoder_layers, 1},
      {"max_positions", max_positions, 1},
      {"vocabulary_size", vocabulary_size, 1},
      {"source_vocabulary_size", source_vocabulary_size, 0},
      {"target_vocabulary_size", target_vocabulary_size, 0},
  };
  for (const auto& [name, size, least] : sizes) {
    if (size < least) {
      throw Error(fmt::format("model.{}", name), fmt::format("is {}, expected at least {}", size, least));
    }
  }
  for (auto [name, width] : {std::pair{"d_k", &settings.d_k}, {"d_v", &settings.d_v}}) {
    if (*width != 0) continue;
    if (d_model % heads != 0) {
      throw Error(fmt::format("model.{}", name), fmt::format("heads ({}) does not divide d_model ({})", heads, d_model),
                  "set it explicitly");
    }
    *width = d_model / heads;
  }
  if (settings.source_vocabulary_size == 0) settings.source_vocabulary_size = vocabulary_size;
  if (settings.target_vocabulary_size == 0) settings.target_vocabulary_size = vocabulary_size;
  if (shared_embeddings == SharedEmbeddings::all &&
      settings.source_vocabulary_size != settings.target_vocabulary_size) {
    throw Error("model.shared_embeddings",
                fmt::format("one embedding cannot serve vocabularies of {} and {} pieces",
                            settings.source_vocabulary_size, settings.target_vocabulary_size),
                "set it to 'target' or 'none'");
  }
  return settings;
}

}  // namespace transformer
