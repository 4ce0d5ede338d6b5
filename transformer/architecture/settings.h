#pragma once

#include <cstdint>
#include <string>

#include "transformer/base/settings.h"

namespace transformer {

/// Shape alphabet of this room: B batch, S source length, T target length, N rows (live hypotheses), H heads,
/// V vocabulary, D d_model.

/// The model's sizes and switches (settings section `model`; §3, Table 3). Defaults are the paper's base model.
struct ModelSettings {
  /// Where positions come from (§3.5, Table 3 E).
  enum class Positions {
    sinusoidal,  // sines and cosines, of any length
    learned      // trained, for max_positions positions
  };
  /// Which of source, target and projection share a matrix (§3.4).
  enum class SharedEmbeddings {
    all,     // source, target and projection
    target,  // target and projection
    none     // each has its own
  };
  /// How a query is compared with a key (§3.2.1).
  enum class Compatibility {
    scaled_dot_product,  // q·k / sqrt(d_k), eq. 1
    dot_product,         // q·k, without the scale
    additive             // v·tanh(W_q q + W_k k) in every head
  };
  /// What tells a layer of the decoder of the positions before (§3.1).
  enum class DecoderSelfAttention {
    attention,  // masked self-attention
    ssru        // one state in its place, a simpler simple recurrent unit (Kim et al. 2019)
  };
  /// The sub-layer after attention (§3.3).
  enum class FeedForward {
    network,                   // eq. 2
    attention_over_parameters  // trained keys and values in its place
  };
  /// Of the feed-forward network.
  enum class Activation {
    relu,    // max(0, x), the paper's
    gelu,    // x Φ(x)
    swiglu,  // silu(x W_3) · (x W_1): a third matrix
    swish    // x / (1 + exp(-x))
  };
  /// Of the sub-layers' sums, or of what goes into them (§3.1).
  enum class Normalization {
    post,  // LayerNorm(x + Sublayer(x)), the paper's
    pre    // x + Sublayer(LayerNorm(x)), and a last one behind the stack
  };

  int64_t d_model = 512;
  int64_t d_ff = 2048;
  int64_t heads = 8;
  int64_t d_k = 0;  // 0: d_model / heads
  int64_t d_v = 0;  // 0: d_model / heads
  int64_t encoder_layers = 6;
  int64_t decoder_layers = 6;
  double dropout = 0.1;
  double attention_dropout = 0.0;
  double relu_dropout = 0.0;
  double symbol_dropout = 0.0;
  Compatibility compatibility = Compatibility::scaled_dot_product;
  int64_t attention_window = 0;  // 0: all positions
  DecoderSelfAttention decoder_self_attention = DecoderSelfAttention::attention;
  FeedForward feed_forward = FeedForward::network;
  Activation activation = Activation::relu;
  int64_t parameter_heads = 8;     // h_p
  int64_t parameter_d_k = 64;      // d_pk
  int64_t parameter_d_v = 64;      // d_pv
  int64_t parameter_pairs = 1536;  // n_p
  Normalization normalization = Normalization::post;
  Positions positions = Positions::sinusoidal;
  int64_t max_positions = 1024;
  int64_t vocabulary_size = 37000;
  int64_t source_vocabulary_size = 0;  // 0: vocabulary_size
  int64_t target_vocabulary_size = 0;  // 0: vocabulary_size
  SharedEmbeddings shared_embeddings = SharedEmbeddings::all;
  bool scaled_embeddings = true;
  bool embedding_normalization = false;
  bool projection_bias = false;
  bool output_bias = false;
  double layer_norm_epsilon = 1e-5;

  static void describe(Fields<ModelSettings>& field);

  /// These settings with every 0 that stands for a derived size replaced by that size. Throws Error for
  /// sizes that are not positive and where settings contradict each other: heads that do not divide d_model while d_k
  /// or d_v is left open, a shared embedding over two vocabularies of different size, an activation or its dropout
  /// where attention over parameters takes the feed-forward network's place.
  ModelSettings resolved() const;

  /// What of the model's structure differs from the paper's printed base model, a line each ("attention window 64",
  /// say); empty where nothing does. Sizes and dropout rates are not part of it.
  std::string variations() const;
};

}  // namespace transformer
