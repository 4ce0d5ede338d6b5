#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transformer/architecture/settings.h"
#include "transformer/model/decoder.h"
#include "transformer/model/embedding.h"
#include "transformer/model/encoder.h"
#include "transformer/model/positional_encoding.h"
#include "transformer/model/tensors.h"

namespace transformer {

/// Layers of one's own; empty ones are the paper's.
struct LayerFactories {
  EncoderLayerFactory encoder = {};  // of the encoder's layers
  DecoderLayerFactory decoder = {};  // of the decoder's
};

/// The encoder-decoder of §3 (Figure 1). Ids are int64, others throw c10::Error; `padding_id` fills sequences up on the
/// right, and all masks follow from it. In training symbol dropout replaces input ids by `unknown_id`, which
/// vocabularies that spell unknown characters in bytes never use otherwise.
class TransformerImpl : public torch::nn::Module {
 public:
  /// The ids that every vocabulary reserves (Vocabulary).
  static constexpr int64_t padding_id = 0, begin_id = 1, unknown_id = 3;

  /// With random weights, from LibTorch's generator. Throws Error as ModelSettings::resolved does, and Failure where
  /// there is not enough memory for its parameters.
  explicit TransformerImpl(const ModelSettings& settings, const LayerFactories& layers = {});

  /// Logits [B, T, V] of the next token at every target position, for source [B, S] and target input [B, T].
  torch::Tensor forward(const torch::Tensor& source, const torch::Tensor& target_input);

  /// What the decoder looks at.
  struct Encoded {
    torch::Tensor memory;                // [B, S, D]
    std::optional<torch::Tensor> mask;   // bool [B, 1, 1, S], true = a token; none where nothing is padded
    std::vector<torch::Tensor> weights;  // a layer each [B, H, S, S], if asked for
  };
  /// `padded`: whether any row of `source` is; a caller that knows spares attention a mask where none is, and a GPU the
  /// question.
  Encoded encode(const torch::Tensor& source, bool weights = false, std::optional<bool> padded = {});
  /// Hidden states, before the projection to the vocabulary.
  DecoderImpl::Output decode(const torch::Tensor& target_input, const Encoded& encoded, bool weights = false);
  /// hidden [.., D] -> logits [.., V].
  torch::Tensor project(const torch::Tensor& hidden);
  /// The matrix of `project`, [V, D].
  const torch::Tensor& projection_weight() const;
  /// What `project` adds, [V]; undefined where the model has no such biases.
  const torch::Tensor& projection_bias() const { return output_bias_; }

  /// The factors of `project`, for losses that never make all logits at once: hidden states [.., D], matrix [V, D] and
  /// biases [V], undefined where there are none.
  struct Projection {
    torch::Tensor hidden, weight, bias;  // as they are named above
  };
  Projection projection_of(const torch::Tensor& hidden) const;  ///< Of decoder states [.., D].

  /// Decoding one token at a time: a cache of B rows, one per sentence.
  DecoderCache start(const Encoded& encoded);
  /// tokens [N] int64 -> logits [N, V]; the cache grows by one position.
  torch::Tensor step(const torch::Tensor& tokens, DecoderCache& cache);

  /// Saves memory at the price of time: in training the results inside encoder and decoder layers are dropped
  /// after the forward pass, all but the layer's own output, and computed again, with the same dropout, in the backward
  /// pass. Gradients are the same bit for bit, if between the two passes the model stays as it is and nobody else draws
  /// from LibTorch's generator: such models are trained by one thread of a process at a time. The backward pass throws
  /// where a layer is in another mode by then. Off unless switched on; no parameter, so a model is saved without
  /// it.
  void set_recompute(bool on);

  /// Quantization-aware training: in training mode the factors of linear layers, embeddings and the projection are
  /// rounded as decoding in int8 rounds them (rounded_to_int8), and gradients pass straight through. Layers take their
  /// general way then, the fused ones know no rounding. Off unless switched on; no parameter either.
  void set_quantization(bool on);

  /// As they were resolved.
  const ModelSettings& settings() const { return settings_; }
  /// Trained numbers, shared ones counted once.
  int64_t parameter_count() const;

 private:
  /// `ids` with symbol dropout, in training.
  torch::Tensor with_symbol_dropout(const torch::Tensor& ids) const;
  torch::Tensor embed(TokenEmbedding& embedding, PositionalEncoding& positions, EmbeddingNorm& norm,
                      const torch::Tensor& ids, int64_t first);

  ModelSettings settings_;
  TokenEmbedding source_embedding_{nullptr}, target_embedding_{nullptr}, projection_{nullptr};
  torch::Tensor output_bias_;
  PositionalEncoding source_positions_{nullptr}, target_positions_{nullptr};
  EmbeddingNorm source_norm_{nullptr}, target_norm_{nullptr};  // null: embeddings are not normalised
  Encoder encoder_{nullptr};
  Decoder decoder_{nullptr};
};
TORCH_MODULE(Transformer);

/// All parameters by name, as named_parameters names them.
TensorMap weights_of(const torch::nn::Module& module);

/// Writes a model's weights as safetensors, converted to `type` where one is given (whole or not at all; see
/// base/tensor_file.h). Throws std::invalid_argument for a type that is not floating-point, and Error where a weight
/// that is finite is no longer so once converted.
void write_weights(const std::filesystem::path& file, TensorMap weights, std::optional<torch::ScalarType> type = {});

/// The same, bound to the settings of the `config_yaml` that lies beside them (bound_metadata in
/// architecture/model_directory.h). Throws as write_weights does.
void write_bound_weights(const std::filesystem::path& file, TensorMap weights, const std::filesystem::path& config_yaml,
                         std::optional<torch::ScalarType> type = {},
                         const std::map<std::string, std::string>& provenance = {});

/// Writes all parameters as safetensors in `type` (whole or not at all; see base/tensor_file.h). Throws as
/// write_weights does.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& file,
                  torch::ScalarType type = torch::kFloat32);

/// Reads parameters back, converted to the module's type and device. Throws Error naming the first parameter that is
/// missing, unknown to the module, of another shape, of integers or, in the module's type, not finite; the module is
/// then as it was.
void load_weights(torch::nn::Module& module, const std::filesystem::path& file);

/// The model of a model directory: config.yaml's `model` section and model.safetensors, in evaluation mode. Throws
/// Error as read_model_settings, verify_model_directory and load_weights, and Failure as the constructor.
Transformer load_transformer(const std::filesystem::path& directory, torch::Device device = torch::kCPU);

}  // namespace transformer
