#include "transformer/interop/exported_settings.h"

#include <set>

namespace transformer {

std::optional<std::string> setting_not_exported(const ModelSettings& settings) {
  static const std::set<std::string> known = {"d_model",
                                              "d_ff",
                                              "heads",
                                              "d_k",
                                              "d_v",
                                              "encoder_layers",
                                              "decoder_layers",
                                              "dropout",
                                              "attention_dropout",
                                              "relu_dropout",
                                              "symbol_dropout",
                                              "compatibility",
                                              "attention_window",
                                              "decoder_self_attention",
                                              "feed_forward",
                                              "activation",
                                              "parameter_heads",
                                              "parameter_d_k",
                                              "parameter_d_v",
                                              "parameter_pairs",
                                              "normalization",
                                              "positions",
                                              "max_positions",
                                              "vocabulary_size",
                                              "source_vocabulary_size",
                                              "target_vocabulary_size",
                                              "shared_embeddings",
                                              "scaled_embeddings",
                                              "embedding_normalization",
                                              "projection_bias",
                                              "output_bias",
                                              "layer_norm_epsilon"};
  for (const auto& setting : settings.changed()) {
    if (!known.contains(setting)) return setting;
  }
  return std::nullopt;
}

}  // namespace transformer
