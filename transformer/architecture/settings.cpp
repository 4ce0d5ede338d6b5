#include "transformer/architecture/settings.h"

#include <fmt/format.h>

#include <utility>

#include "transformer/architecture/parameter_count.h"
#include "transformer/base/check_ranges.h"
#include "transformer/base/error.h"

namespace transformer {

void ModelSettings::describe(Fields<ModelSettings>& field) {
  field("d_model", &ModelSettings::d_model, "width of embeddings and of every sub-layer's output (§3.1)",
        between(1, 65536));
  field("d_ff", &ModelSettings::d_ff, "inner width of the feed-forward sub-layers (§3.3)", between(1, 1048576));
  field("heads", &ModelSettings::heads, "attention heads h (§3.2.2)", between(1, 4096));
  field("d_k", &ModelSettings::d_k, "width of a head's queries and keys; 0: d_model / heads", between(0, 65536));
  field("d_v", &ModelSettings::d_v, "width of a head's values; 0: d_model / heads", between(0, 65536));
  field.pair("layers", {"encoder_layers", "decoder_layers"}, "sets encoder_layers and decoder_layers");
  field("encoder_layers", &ModelSettings::encoder_layers, "layers of the encoder, N (§3.1)", between(1, 1000));
  field("decoder_layers", &ModelSettings::decoder_layers, "layers of the decoder, N (§3.1)", between(1, 1000));
  field("dropout", &ModelSettings::dropout,
        "P_drop on every sub-layer's output and on the sums of embeddings and positions (§5.4)", fraction())
      .changeable();
  field("attention_dropout", &ModelSettings::attention_dropout, "dropout on the attention weights", fraction())
      .changeable();
  field("relu_dropout", &ModelSettings::relu_dropout,
        "dropout after the activation of the feed-forward networks, whichever activation it is", fraction())
      .changeable();
  field("symbol_dropout", &ModelSettings::symbol_dropout,
        "share of input ids, source and target, that training replaces by the unknown id; never padding or begin",
        fraction())
      .changeable();
  field("compatibility", &ModelSettings::compatibility,
        "how attention compares a query with a key (§3.2.1): scaled_dot_product, q·k / sqrt(d_k); dot_product, q·k; "
        "additive, v·tanh(W_q q + W_k k), one hidden layer of width d_k a head",
        {{"scaled_dot_product", Compatibility::scaled_dot_product},
         {"dot_product", Compatibility::dot_product},
         {"additive", Compatibility::additive}});
  field(
      "attention_window", &ModelSettings::attention_window,
      "restricted self-attention (§4): r, a position sees itself and r / 2 positions, rounded down, on each side; the "
      "decoder those before it alone; 0: all",
      between(0, 1048576));
  field("decoder_self_attention", &ModelSettings::decoder_self_attention,
        "what tells a layer of the decoder of the positions before: attention (§3.1), or ssru, a simpler simple "
        "recurrent unit (Kim et al. 2019), which keeps one state for all of them, has half the weights and takes as "
        "long at every position",
        {{"attention", DecoderSelfAttention::attention}, {"ssru", DecoderSelfAttention::ssru}});
  field("feed_forward", &ModelSettings::feed_forward,
        "the sub-layer after attention: network (§3.3), or attention_over_parameters, whose keys and values are "
        "trained parameters (see parameter_*)",
        {{"network", FeedForward::network}, {"attention_over_parameters", FeedForward::attention_over_parameters}});
  field("activation", &ModelSettings::activation,
        "of the feed-forward network: relu (§3.3); gelu; swiglu, the product of silu and a linear map, with a third "
        "matrix: 3 · d_model · d_ff weights, as many as relu's where d_ff is two thirds; swish, x / (1 + exp(-x))",
        {{"relu", Activation::relu},
         {"gelu", Activation::gelu},
         {"swiglu", Activation::swiglu},
         {"swish", Activation::swish}});
  field("parameter_heads", &ModelSettings::parameter_heads, "heads h_p of attention over parameters", between(1, 4096));
  field("parameter_d_k", &ModelSettings::parameter_d_k, "width d_pk of a head's queries and trained keys",
        between(1, 65536));
  field("parameter_d_v", &ModelSettings::parameter_d_v, "width d_pv of a head's trained values", between(1, 65536));
  field("parameter_pairs", &ModelSettings::parameter_pairs, "trained pairs of key and value n_p in a head",
        between(1, 1048576));
  field("normalization", &ModelSettings::normalization,
        "post: LayerNorm(x + Sublayer(x)) (§3.1); pre: x + Sublayer(LayerNorm(x)), and a last LayerNorm after each "
        "stack",
        {{"post", Normalization::post}, {"pre", Normalization::pre}});
  field("positions", &ModelSettings::positions, "positional encoding (§3.5, Table 3 E)",
        {{"sinusoidal", Positions::sinusoidal}, {"learned", Positions::learned}});
  field("max_positions", &ModelSettings::max_positions, "positions that are learned (positions: learned)",
        between(1, 1048576));
  field("vocabulary_size", &ModelSettings::vocabulary_size, "word pieces in the vocabulary (§5.1)",
        between(5, 10000000));
  field("source_vocabulary_size", &ModelSettings::source_vocabulary_size,
        "word pieces of the source's own vocabulary; 0: vocabulary_size", between(0, 10000000));
  field("target_vocabulary_size", &ModelSettings::target_vocabulary_size,
        "word pieces of the target's own vocabulary; 0: vocabulary_size", between(0, 10000000));
  field("shared_embeddings", &ModelSettings::shared_embeddings,
        "all: one matrix for source, target and pre-softmax projection (§3.4); target: one for target and projection; "
        "none: three matrices",
        {{"all", SharedEmbeddings::all}, {"target", SharedEmbeddings::target}, {"none", SharedEmbeddings::none}});
  field("scaled_embeddings", &ModelSettings::scaled_embeddings,
        "multiplies embeddings by sqrt(d_model) before positions are added (§3.4)");
  field("embedding_normalization", &ModelSettings::embedding_normalization,
        "a LayerNorm on the sums of embeddings and positions, before their dropout; the paper has none");
  field("projection_bias", &ModelSettings::projection_bias,
        "biases in the attention projections; the paper's parameter counts have none");
  field("output_bias", &ModelSettings::output_bias,
        "a bias for each word piece in the pre-softmax projection; the paper's has none");
  field("layer_norm_epsilon", &ModelSettings::layer_norm_epsilon, "epsilon of layer normalisation", between(1e-30, 1));
}

ModelSettings ModelSettings::resolved() const {
  ModelSettings settings = *this;
  check_ranges("model", *this);
  for (auto [name, width] : {std::pair{"d_k", &settings.d_k}, {"d_v", &settings.d_v}}) {
    if (*width != 0) continue;
    if (d_model % heads != 0) {
      throw Error(fmt::format("model.{}", name), fmt::format("heads ({}) does not divide d_model ({})", heads, d_model),
                  fmt::format("choose a multiple of heads for d_model, or set model.{}", name));
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
  if (feed_forward == FeedForward::attention_over_parameters) {
    const auto refuse = [](const char* name, const char* what) {
      throw Error(fmt::format("model.{}", name), fmt::format("attention over parameters has no {}", what),
                  "leave it out, or set model.feed_forward: network");
    };
    if (activation != Activation::relu) refuse("activation", "activation to choose");
    if (relu_dropout != 0) refuse("relu_dropout", "activation to drop; attention_dropout applies to it");
  }
  parameter_count(settings);  // refuses what is too large before anybody multiplies sizes
  return settings;
}

std::string ModelSettings::variations() const {
  std::string text;
  const auto add = [&](bool differs, const std::string& line) {
    if (differs) text += fmt::format("{}\n", line);
  };
  add(compatibility == Compatibility::dot_product, "attention by dot products without scaling");
  add(compatibility == Compatibility::additive, "additive attention");
  add(attention_window > 0, fmt::format("self-attention within a window of {}: {} positions on each side",
                                        attention_window, attention_window / 2));
  add(decoder_self_attention == DecoderSelfAttention::ssru, "a recurrent unit (SSRU) for the decoder's self-attention");
  add(feed_forward == FeedForward::attention_over_parameters,
      fmt::format("attention over parameters for the feed-forward network: {} heads, d_pk {}, d_pv {}, {} pairs a head",
                  parameter_heads, parameter_d_k, parameter_d_v, parameter_pairs));
  add(activation == Activation::gelu, "feed-forward networks with GELU");
  add(activation == Activation::swiglu, "feed-forward networks with SwiGLU");
  add(activation == Activation::swish, "feed-forward networks with swish");
  add(normalization == Normalization::pre, "normalisation before each sub-layer and after each stack");
  add(positions == Positions::learned, fmt::format("{} learned positions", max_positions));
  add(shared_embeddings == SharedEmbeddings::target, "the source has its own embedding");
  add(shared_embeddings == SharedEmbeddings::none, "source, target and projection have a matrix each");
  add(!scaled_embeddings, "embeddings that are not multiplied by sqrt(d_model)");
  add(embedding_normalization, "normalisation of embeddings with their positions");
  add(projection_bias, "attention projections with biases");
  add(output_bias, "a pre-softmax projection with biases");
  return text;
}

}  // namespace transformer
