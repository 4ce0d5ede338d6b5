#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <optional>

#include "transformer/architecture/settings.h"
#include "transformer/model/fused/fused_layers.h"
#include "transformer/model/quantization.h"

namespace transformer {

/// What attention returns. A mask is boolean throughout: true = may attend.
struct Attended {
  torch::Tensor values;   // the result
  torch::Tensor weights;  // [B, H, T, S] after the softmax; undefined unless asked for
};

/// How queries attend.
struct AttentionOptions {
  std::optional<torch::Tensor> mask = {};  // bool, broadcastable to [B, H, T, S]
  bool causal = false;                     // query t sees keys up to t; T = S
  double dropout = 0;                      // on the weights
  bool weights = false;                    // return the weights too
  /// r: query t sees the keys from t - ⌊r/2⌋ to t + ⌊r/2⌋ alone, T = S; 0: all. From r = 2T - 1 on that is all of them.
  int64_t window = 0;
  std::optional<double> scale = {};            // of the dot products; none: 1 / sqrt(d_k)
  std::optional<torch::Tensor> additive = {};  // v [H, d_k]: scores are v·tanh(q + k) instead of dot products
};

/// softmax(QK^T / sqrt(d_k)) V (§3.2.1, eq. 1) for query [B, H, T, d_k], key [B, H, S, d_k], value [B, H, S, d_v];
/// values come back as [B, H, T, d_v]. A query that may attend to nothing gets zeros.
///
/// With a window the cost grows with T·r, not T², and no mask or score of size T² is made, unless the weights are asked
/// for. Additive scores, too, are made for a few queries at a time.
Attended attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                   const AttentionOptions& options = {});

/// The same for a few sentences at a time, `most` at most: LibTorch's kernels for GPUs count the heads of all
/// sentences, and flash attention's backward pass the places of their queries and keys, in numbers that a batch of many
/// short sentences exceeds.
Attended attention_in_parts(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                            const AttentionOptions& options, int64_t most);
/// How many sentences these kernels take at once.
int64_t most_sentences_at_once(const torch::Tensor& query, const torch::Tensor& key);

/// Sizes and switches of a sub-layer; the paper's base model by default.
struct MultiHeadAttentionOptions {
  int64_t d_model = 512;  // width of what goes in and comes out, D
  int64_t heads = 8;      // H
  int64_t d_k = 64;       // width of a head's queries and keys
  int64_t d_v = 64;       // width of a head's values
  double dropout = 0;     // on the weights, in training
  bool bias = false;      // of the four projections
  ModelSettings::Compatibility compatibility =
      ModelSettings::Compatibility::scaled_dot_product;  // of queries with keys
};

/// MultiHead(Q, K, V) = Concat(head_1 .. head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (§3.2.2).
///
/// The projections of all heads lie in one matrix, queries first, then keys, then values, so that self-attention is
/// one product: parameters `input_weight` [(2 d_k + d_v) H, D], `input_bias`, `output.weight` [D, d_v H],
/// `output.bias`.
///
/// Additive compatibility, v·tanh(W_q q + W_k k) in every head, has a hidden layer as wide as the head's keys:
/// parameters `additive_query` and `additive_key` [H, d_k, d_k], `additive_vector` [H, d_k].
class MultiHeadAttentionImpl : public torch::nn::Module, public QuantizationAware {
 public:
  /// With random weights: uniform, within sqrt(6 / (rows + columns)) of each projection.
  explicit MultiHeadAttentionImpl(const MultiHeadAttentionOptions& options);

  /// query [B, T, D], key and value [B, S, D] -> [B, T, D]. `call.dropout`, `scale` and `additive` are set by the
  /// module itself.
  Attended forward(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                   AttentionOptions call = {});

  // The parts of forward, for decoding with cached keys and values.

  /// Queries and keys as they are compared: with additive compatibility W_q q and W_k k, so that cached keys are not
  /// multiplied again.
  struct Heads {
    torch::Tensor query;  // [B, H, T, d_k]
    torch::Tensor key;    // [B, H, T, d_k]
    torch::Tensor value;  // [B, H, T, d_v]
  };
  /// Query, key and value of the same input [B, T, D], in one product.
  Heads project(const torch::Tensor& input);
  /// The query of `input` alone.
  torch::Tensor project_query(const torch::Tensor& input);
  /// Key and value of `memory` [B, S, D], in one product; `query` stays undefined.
  Heads project_memory(const torch::Tensor& memory);
  /// Attention and output projection: [B, T, D].
  Attended attend(const Heads& heads, AttentionOptions call);

  /// As they were given.
  const MultiHeadAttentionOptions& options() const { return options_; }
  /// What a fused sub-layer computes with; none for additive attention, where products are of rounded factors, and for
  /// parameters that are not float32.
  std::optional<FusedProjections> fusable_projections() const;

 private:
  bool additive() const { return additive_vector_.defined(); }
  /// input [B, T, D] times rows of input_weight.
  torch::Tensor projected(const torch::Tensor& input, int64_t first_row, int64_t rows) const;

  MultiHeadAttentionOptions options_;
  torch::Tensor input_weight_, input_bias_;
  torch::Tensor additive_query_, additive_key_, additive_vector_;
  torch::nn::Linear output_{nullptr};
};
TORCH_MODULE(MultiHeadAttention);

}  // namespace transformer
