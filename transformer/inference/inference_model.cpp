#include "transformer/inference/inference_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/sinusoids.h"
#include "transformer/base/error.h"
#include "transformer/base/finite.h"

namespace transformer {

/// What is added to the embeddings of each position. Sinusoids are computed a block of positions at a time, when one of
/// them is first asked for: most sentences are short.
class InferenceModel::PositionTable {
 public:
  explicit PositionTable(std::vector<float> learned, int64_t d_model) : d_model_(d_model), learned_(std::move(learned)) {}
  explicit PositionTable(int64_t d_model) : d_model_(d_model), blocks_(block_count) {}

  /// Throws Error where a sequence of so many tokens needs more positions than were learned.
  void check(int64_t tokens) const {
    const auto count = static_cast<int64_t>(learned_.size()) / d_model_;
    if (!blocks_.empty() || tokens <= count) return;
    throw Error("model.max_positions",
                fmt::format("a sequence of {} tokens is longer than the {} positions this model learned", tokens, count),
                "split the line, or train with more positions or with sinusoidal ones");
  }

  /// x [D] += encoding(position). Throws as `check` does.
  void add(int64_t position, float* x) const {
    if (blocks_.empty()) {
      check(position + 1);
      add(learned_.data() + position * d_model_, x);
    } else if (position < block_count * block_positions) {
      const auto& block = blocks_[static_cast<size_t>(position / block_positions)];
      std::call_once(block.computed, [&] {
        const auto encodings = sinusoids(position / block_positions * block_positions, block_positions, d_model_);
        block.encodings.assign(encodings.begin(), encodings.end());
      });
      add(block.encodings.data() + position % block_positions * d_model_, x);
    } else {
      const auto encodings = sinusoids(position, 1, d_model_);
      for (int64_t i = 0; i < d_model_; ++i) x[i] += static_cast<float>(encodings[static_cast<size_t>(i)]);
    }
  }

 private:
  static constexpr int64_t block_positions = 64, block_count = 128;
  struct Block {
    mutable std::once_flag computed;
    mutable std::vector<float> encodings;  // [block_positions, D]
  };

  void add(const float* encoding, float* x) const {
    for (int64_t i = 0; i < d_model_; ++i) x[i] += encoding[i];
  }

  int64_t d_model_;
  std::vector<float> learned_;  // [positions, D]
  std::vector<Block> blocks_;   // none where positions are learned
};

InferenceModel::~InferenceModel() = default;

namespace {

void check_token(int64_t token, const PackedMatrix& embedding) {
  if (token >= 0 && token < embedding.outputs()) return;
  throw Error(fmt::format("word piece {}", token),
              fmt::format("is not one of the vocabulary's {} pieces", embedding.outputs()));
}

}  // namespace

bool InferenceModel::supports(const ModelSettings& given) {
  // Every setting that is handled below, whatever its value, or that has no effect outside training.
  static const std::set<std::string> handled = {"d_model",
                                                "d_ff",
                                                "heads",
                                                "d_k",
                                                "d_v",
                                                "encoder_layers",
                                                "decoder_layers",
                                                "normalization",
                                                "dropout",
                                                "attention_dropout",
                                                "relu_dropout",
                                                "symbol_dropout",
                                                "positions",
                                                "max_positions",
                                                "vocabulary_size",
                                                "source_vocabulary_size",
                                                "target_vocabulary_size",
                                                "shared_embeddings",
                                                "projection_bias",
                                                "layer_norm_epsilon"};
  const auto changed = given.changed();
  return std::includes(handled.begin(), handled.end(), changed.begin(), changed.end());
}

InferenceModel::InferenceModel(const ModelSettings& given, StoredWeights weights, Precision precision,
                               const std::string& origin, const Kernels& kernels)
    : settings_(given.resolved()), precision_(precision), kernels_(kernels) {
  if (precision == Precision::fp16) throw Error("precision", "fp16 is for decoding on a GPU", "use bf16");
  const auto& s = settings_;
  using Shared = ModelSettings::SharedEmbeddings;
  check_weights(weights, s, origin);
  const auto memory = std::make_shared<WeightMemory>();
  // Rows of a weight from `first` on.
  std::vector<float> rows;
  const auto pack_rows = [&](const std::string& name, int64_t first, int64_t count, const float* bias) {
    const auto& weight = weights.at(name);
    const auto source = [&](int64_t row, int64_t some) {
      rows.resize(static_cast<size_t>(some * weight.shape[1]));
      weight.rows(first + row, some, rows.data());
      // int8 would make an ordinary number of one that is not finite.
      if (!all_finite(rows)) refuse_not_finite(origin, name);
      return rows.data();
    };
    PackedMatrix matrix(kernels, precision, count, weight.shape[1], source, bias, memory);
    bytes_ += matrix.bytes();
    return matrix;
  };
  const auto pack = [&](const std::string& name, const float* bias = nullptr) {
    return pack_rows(name, 0, weights.at(name).shape[0], bias);
  };
  const auto numbers = [&](const std::string& name) { return read_weight(weights.at(name), name, origin); };

  embedding_scale_ = static_cast<float>(std::sqrt(static_cast<double>(s.d_model)));
  const auto pack_embedding = [&](int which, const std::string& name) {
    embeddings_[which] = pack(name + ".weight");
    return &embeddings_[which];
  };
  if (s.shared_embeddings == Shared::all) {
    source_embedding_ = target_embedding_ = projection_ = pack_embedding(0, "embedding");
  } else {
    source_embedding_ = pack_embedding(0, "source_embedding");
    target_embedding_ = projection_ = pack_embedding(1, "target_embedding");
    if (s.shared_embeddings == Shared::none) projection_ = pack_embedding(2, "projection");
  }

  if (s.positions == ModelSettings::Positions::learned) {
    const auto learned = [&](const std::string& name) {
      return std::make_shared<PositionTable>(numbers(name), s.d_model);
    };
    source_positions_ = learned("source_positions.weight");
    target_positions_ = learned("target_positions.weight");
  } else {
    source_positions_ = target_positions_ = std::make_shared<PositionTable>(s.d_model);
  }

  const int64_t key_rows = s.heads * s.d_k, value_rows = s.heads * s.d_v;
  const auto bias_of = [&](const std::string& name) {
    return s.projection_bias ? numbers(name) : std::vector<float>{};
  };
  const auto at_row = [](const std::vector<float>& bias, int64_t row) {
    return bias.empty() ? nullptr : bias.data() + row;
  };
  const auto attention_output = [&](const std::string& name) {
    const auto bias = bias_of(name + ".output.bias");
    return pack(name + ".output.weight", at_row(bias, 0));
  };
  const auto query_key_value = [&](const std::string& name) {
    const auto bias = bias_of(name + ".input_bias");
    return pack(name + ".input_weight", at_row(bias, 0));
  };
  const auto norm = [&](const std::string& name) {
    return Norm{numbers(name + ".norm.weight"), numbers(name + ".norm.bias")};
  };
  const auto feed_forward = [&](const std::string& name) {
    const auto inner_bias = numbers(name + ".inner.bias");
    const auto outer_bias = numbers(name + ".outer.bias");
    FeedForward result;
    result.inner = pack(name + ".inner.weight", inner_bias.data());
    result.outer = pack(name + ".outer.weight", outer_bias.data());
    return result;
  };

  for (int64_t i = 0; i < s.encoder_layers; ++i) {
    const auto name = fmt::format("encoder.layers.{}.", i);
    auto& layer = encoder_.emplace_back();
    layer.query_key_value = query_key_value(name + "self_attention");
    layer.attention_output = attention_output(name + "self_attention");
    layer.after_attention = norm(name + "after_self_attention");
    layer.feed_forward = feed_forward(name + "feed_forward");
    layer.after_feed_forward = norm(name + "after_feed_forward");
  }
  for (int64_t i = 0; i < s.decoder_layers; ++i) {
    const auto name = fmt::format("decoder.layers.{}.", i);
    auto& layer = decoder_.emplace_back();
    layer.query_key_value = query_key_value(name + "self_attention");
    layer.self_output = attention_output(name + "self_attention");
    layer.after_self_attention = norm(name + "after_self_attention");
    {
      const auto bias = bias_of(name + "memory_attention.input_bias");
      const auto weight = name + "memory_attention.input_weight";
      layer.query = pack_rows(weight, 0, key_rows, at_row(bias, 0));
      layer.key_value = pack_rows(weight, key_rows, key_rows + value_rows, at_row(bias, key_rows));
    }
    layer.memory_output = attention_output(name + "memory_attention");
    layer.after_memory_attention = norm(name + "after_memory_attention");
    layer.feed_forward = feed_forward(name + "feed_forward");
    layer.after_feed_forward = norm(name + "after_feed_forward");
  }
  if (s.normalization == ModelSettings::Normalization::pre) {
    encoder_norm_ = norm("encoder");
    decoder_norm_ = norm("decoder");
  }
}

std::unique_ptr<InferenceModel> InferenceModel::load(const std::filesystem::path& directory,
                                                     const ModelSettings& settings, Precision precision) {
  verify_model_directory(directory);
  const auto file = directory / "model.safetensors";
  return std::make_unique<InferenceModel>(settings, stored_weights(file), precision, file.string());
}

void InferenceModel::check(std::span<const int64_t> source, int64_t max_length) const {
  if (source.empty()) throw Error("source", "is empty", "give its pieces and the end");
  for (const int64_t token : source) check_token(token, *source_embedding_);
  source_positions_->check(static_cast<int64_t>(source.size()));
  target_positions_->check(max_length + 1);  // what is read, begin included
}

void InferenceModel::embed_source(int64_t token, int64_t position, float* x) const {
  embed(*source_embedding_, *source_positions_, token, position, x);
}

void InferenceModel::embed_target(int64_t token, int64_t position, float* x) const {
  embed(*target_embedding_, *target_positions_, token, position, x);
}

void InferenceModel::embed(const PackedMatrix& embedding, const PositionTable& positions, int64_t token,
                           int64_t position, float* x) const {
  check_token(token, embedding);
  embedding.row(token, embedding_scale_, x);
  positions.add(position, x);
}

}  // namespace transformer
