#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "transformer/architecture/settings.h"
#include "transformer/architecture/weights.h"
#include "transformer/inference/packed_in.h"
#include "transformer/inference/packed_matrix.h"

namespace transformer {

class MappedFile;
class PackedWeights;
class WeightSource;

/// The weights of a Transformer of any settings as decoding on a CPU reads them: packed once, rounded to a precision
/// once. It never changes, so threads share it; what changes is an InferenceBatch, one a thread.
///
/// In bf16 and int8, matrices are rounded to that; trained keys and values are bf16, as a sentence's are while it is
/// decoded; biases, normalisations, learned positions and the vectors of additive compatibility stay float32. Additive
/// compatibility's matrices are multiplied into the projections of queries and keys before these are rounded.
class InferenceModel {
 public:
  /// What a normalisation is scaled by and shifted by.
  struct Norm {
    std::vector<float> gain, bias;  // [D]
  };
  /// A feed-forward network's matrices (§3.3). A sub-layer's normalisation is called `after` it, as its parameters are,
  /// also where it comes before.
  struct Network {
    PackedMatrix inner, gate, outer;  // gate: SwiGLU's
  };
  /// Attention over parameters, in a network's place.
  struct ParameterAttention {
    PackedMatrix query, output;        // W^Q [h_p d_pk, D] and W^O [D, h_p d_pv]
    Buffer<unsigned char> pairs;       // [n_p, record], keys and values times sqrt(D)
    std::vector<const void*> records;  // of each pair
  };
  /// The sub-layer after attention.
  using FeedForward = std::variant<Network, ParameterAttention>;
  /// A layer of the encoder's stack.
  struct EncoderLayer {
    PackedMatrix query_key_value, attention_output;  // W^Q, W^K and W^V in one; W^O
    std::vector<float> additive;                     // v [H, d_k]; none where compatibility is a dot product
    Norm after_attention;                            // of the sum around attention
    FeedForward feed_forward;                        // at every position by itself
    Norm after_feed_forward;                         // of the sum around it
  };
  /// A layer of the decoder's stack.
  struct DecoderLayer {
    PackedMatrix recurrence;                       // W_f and W of a recurrent unit in one; empty: self-attention
    PackedMatrix query_key_value, self_output;     // of self-attention, as the encoder's; or empty
    std::vector<float> self_additive;              // v of self-attention; may be none
    Norm after_self_attention;                     // of the sum around self-attention
    PackedMatrix query, key_value, memory_output;  // W^Q of the output; W^K and W^V of the memory in one; W^O
    std::vector<float> memory_additive;            // v of attention over the memory; may be none
    Norm after_memory_attention;                   // of the sum around that
    FeedForward feed_forward;                      // at every position by itself
    Norm after_feed_forward;                       // of the sum around it
  };

  /// Packs `weights`. Throws Error naming the first that is missing, unknown, of another shape, of integers or not
  /// finite, with `origin` (a file) in front.
  InferenceModel(const ModelSettings& settings, StoredWeights weights, Precision precision, const std::string& origin,
                 const Kernels& kernels = *available_kernels().front());
  InferenceModel(InferenceModel&&) = delete;
  ~InferenceModel();
  /// The model of a model directory, without the modules that training needs, in a precision: if none is asked for, as
  /// it is stored. Weights as they were trained are read some rows at a time, and are in memory in their packed form
  /// alone; weights that were packed are mapped, and cost next to nothing, or copied. Throws Error for what is damaged
  /// or does not fit together, and for packed weights of another precision; Failure where the file is cut meanwhile.
  static std::unique_ptr<InferenceModel> load(const std::filesystem::path& directory, const ModelSettings& settings,
                                              std::optional<Precision> precision = std::nullopt,
                                              PackedIn packed_in = PackedIn::file);
  /// Packs the weights of a model directory into a file, which `load` gives the same model from as from the directory.
  /// Throws as `load` does, and Failure when the file cannot be written.
  static void pack(const std::filesystem::path& directory, const ModelSettings& settings, Precision precision,
                   const std::filesystem::path& file);

  /// Resolved.
  const ModelSettings& settings() const { return settings_; }
  /// That weights were rounded to.
  Precision precision() const { return precision_; }
  /// The instruction set that it is packed for.
  const Kernels& kernels() const { return kernels_; }
  /// Of the packed weights.
  size_t bytes() const { return bytes_; }

  /// Throws as check_sentence of its settings does.
  void check(std::span<const int64_t> source, int64_t max_length) const;

  /// Embedding, times sqrt(D) where embeddings are scaled, plus positional encoding, normalised where the model does
  /// that, into x [D]. Throws Error past the last learned position.
  void embed_source(int64_t token, int64_t position, float* x) const;
  /// The same of the target's side.
  void embed_target(int64_t token, int64_t position, float* x) const;
  /// To the vocabulary, with its biases where the model has them.
  const PackedMatrix& projection() const { return *projection_; }

  /// Layers from the first on.
  const std::vector<EncoderLayer>& encoder() const { return encoder_; }
  /// Layers from the first on.
  const std::vector<DecoderLayer>& decoder() const { return decoder_; }
  /// Of the encoder's output, with normalisation before the sub-layers; empty else.
  const Norm& encoder_norm() const { return encoder_norm_; }
  /// The same of the decoder's.
  const Norm& decoder_norm() const { return decoder_norm_; }

 private:
  class PositionTable;

  InferenceModel(const ModelSettings& settings, Precision precision, const Kernels& kernels)
      : settings_(settings.resolved()), precision_(precision), kernels_(kernels) {}
  InferenceModel(const ModelSettings& settings, PackedWeights& weights, Precision precision, const Kernels& kernels);
  void read(WeightSource& source);
  void embed(const PackedMatrix& embedding, const PositionTable& positions, const Norm& norm, int64_t token,
             int64_t position, float* x) const;

  ModelSettings settings_;
  Precision precision_;
  const Kernels& kernels_;
  size_t bytes_ = 0;
  float embedding_scale_ = 0;
  std::shared_ptr<const MappedFile> mapping_;  // that packed weights lie in; may be null
  PackedMatrix embeddings_[3];                 // as many as there are different ones
  const PackedMatrix *source_embedding_ = nullptr, *target_embedding_ = nullptr, *projection_ = nullptr;
  std::shared_ptr<const PositionTable> source_positions_, target_positions_;
  std::vector<EncoderLayer> encoder_;
  std::vector<DecoderLayer> decoder_;
  Norm source_norm_, target_norm_;  // of embeddings; empty where they are not normalised
  Norm encoder_norm_, decoder_norm_;
};

}  // namespace transformer
