#include "transformer/inference/inference_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "transformer/architecture/longest_text.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/sinusoids.h"
#include "transformer/base/error.h"
#include "transformer/base/model_files.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/weight_source.h"

namespace transformer {

/// What is added to the embeddings of each position. Sinusoids are computed a block of positions at a time, when one of
/// them is first asked for: most sentences are short.
class InferenceModel::PositionTable {
 public:
  explicit PositionTable(std::vector<float> learned, int64_t d_model)
      : d_model_(d_model), learned_(std::move(learned)) {}
  explicit PositionTable(int64_t d_model) : d_model_(d_model), blocks_(block_count) {}

  /// Throws Error where a sequence of so many tokens needs more positions than were learned.
  void check(int64_t tokens) const {
    if (blocks_.empty()) check_positions(tokens, static_cast<int64_t>(learned_.size()) / d_model_);
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

void refuse_fp16(Precision precision) {
  if (precision == Precision::fp16) throw Error("precision", "fp16 is for decoding on a GPU", "use bf16");
}

}  // namespace

InferenceModel::InferenceModel(const ModelSettings& given, StoredWeights weights, Precision precision,
                               const std::string& origin, const Kernels& kernels)
    : settings_(given.resolved()), precision_(precision), kernels_(kernels) {
  refuse_fp16(precision);
  TrainedWeights source(settings_, std::move(weights), precision, origin, kernels);
  read(source);
}

InferenceModel::InferenceModel(const ModelSettings& given, PackedWeights& weights, Precision precision,
                               const Kernels& kernels)
    : settings_(given.resolved()), precision_(precision), kernels_(kernels), mapping_(weights.mapping()) {
  read(weights);
  weights.check_all_used();
}

void InferenceModel::read(WeightSource& source) {
  const auto& s = settings_;
  using Shared = ModelSettings::SharedEmbeddings;
  const auto shapes = weight_shapes(s);
  const auto take = [&](const MatrixOf& wanted, const float* bias) {
    auto matrix = source.matrix(wanted, bias);
    bytes_ += matrix.bytes();
    return matrix;
  };
  const auto pack = [&](const std::string& name, const float* bias = nullptr) {
    const auto& shape = shapes.at(name);
    return take({name, name, 0, shape[0], shape[1]}, bias);
  };
  const auto numbers = [&](const std::string& name) { return source.numbers(name, shapes.at(name)); };

  const auto root_of_width = static_cast<float>(std::sqrt(static_cast<double>(s.d_model)));
  embedding_scale_ = s.scaled_embeddings ? root_of_width : 1;
  const auto biases = s.output_bias ? numbers("output_bias") : std::vector<float>{};
  // Rows that are looked up come without the biases of a projection.
  const auto pack_embedding = [&](int which, const std::string& name, bool projects) {
    embeddings_[which] = pack(name + ".weight", projects && s.output_bias ? biases.data() : nullptr);
    return &embeddings_[which];
  };
  if (s.shared_embeddings == Shared::all) {
    source_embedding_ = target_embedding_ = projection_ = pack_embedding(0, "embedding", true);
  } else {
    source_embedding_ = pack_embedding(0, "source_embedding", false);
    target_embedding_ = projection_ = pack_embedding(1, "target_embedding", s.shared_embeddings == Shared::target);
    if (s.shared_embeddings == Shared::none) projection_ = pack_embedding(2, "projection", true);
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
  // Additive compatibility's v of an attention, whose matrices go into its projections, which come after it.
  const auto additive = [&](const std::string& name) {
    if (s.compatibility != ModelSettings::Compatibility::additive) return std::vector<float>{};
    source.fold_additive(name, shapes.at(name + ".additive_query"));
    return numbers(name + ".additive_vector");
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
  if (s.embedding_normalization) {
    source_norm_ = norm("source_embeddings");
    target_norm_ = norm("target_embeddings");
  }
  const auto network = [&](const std::string& name) {
    const auto linear = [&](const std::string& part) {
      const auto bias = numbers(name + part + ".bias");
      return pack(name + part + ".weight", bias.data());
    };
    Network result;
    result.inner = linear(".inner");
    if (s.activation == ModelSettings::Activation::swiglu) result.gate = linear(".gate");
    result.outer = linear(".outer");
    return result;
  };
  const auto parameter_attention = [&](const std::string& name) {
    const auto query_bias = bias_of(name + ".query.bias"), output_bias = bias_of(name + ".output.bias");
    ParameterAttention result;
    result.query = pack(name + ".query.weight", at_row(query_bias, 0));
    result.output = pack(name + ".output.weight", at_row(output_bias, 0));
    const PairsOf wanted{name, s.parameter_heads, s.parameter_pairs, s.parameter_d_k, s.parameter_d_v, root_of_width};
    result.pairs = source.pairs(wanted);
    bytes_ += static_cast<size_t>(result.pairs.size());
    for (int64_t pair = 0; pair < s.parameter_pairs; ++pair) {
      result.records.push_back(result.pairs.data() + pair * wanted.record_bytes(precision_));
    }
    return result;
  };
  const auto feed_forward = [&](const std::string& name) -> FeedForward {
    if (s.feed_forward == ModelSettings::FeedForward::attention_over_parameters) return parameter_attention(name);
    return network(name);
  };

  for (int64_t i = 0; i < s.encoder_layers; ++i) {
    const auto name = fmt::format("encoder.layers.{}.", i);
    auto& layer = encoder_.emplace_back();
    layer.additive = additive(name + "self_attention");
    layer.query_key_value = query_key_value(name + "self_attention");
    layer.attention_output = attention_output(name + "self_attention");
    layer.after_attention = norm(name + "after_self_attention");
    layer.feed_forward = feed_forward(name + "feed_forward");
    layer.after_feed_forward = norm(name + "after_feed_forward");
  }
  for (int64_t i = 0; i < s.decoder_layers; ++i) {
    const auto name = fmt::format("decoder.layers.{}.", i);
    auto& layer = decoder_.emplace_back();
    if (s.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru) {
      auto bias = numbers(name + "recurrence.forget_bias");
      bias.resize(static_cast<size_t>(2 * s.d_model));
      layer.recurrence = pack(name + "recurrence.input_weight", bias.data());
    } else {
      layer.self_additive = additive(name + "self_attention");
      layer.query_key_value = query_key_value(name + "self_attention");
      layer.self_output = attention_output(name + "self_attention");
    }
    layer.after_self_attention = norm(name + "after_self_attention");
    layer.memory_additive = additive(name + "memory_attention");
    {
      const auto attention = name + "memory_attention";
      const auto bias = bias_of(attention + ".input_bias");
      layer.query =
          take({attention + ".query_weight", attention + ".input_weight", 0, key_rows, s.d_model}, at_row(bias, 0));
      layer.key_value = take(
          {attention + ".key_value_weight", attention + ".input_weight", key_rows, key_rows + value_rows, s.d_model},
          at_row(bias, key_rows));
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
                                                     const ModelSettings& settings, std::optional<Precision> precision,
                                                     PackedIn packed_in) {
  verify_model_directory(directory);
  const auto file = directory / weights_name;
  const auto& kernels = *available_kernels().front();
  const auto packed = PackedWeights::precision_of(file, TensorReader(file).metadata());
  if (!packed) {
    return std::make_unique<InferenceModel>(settings, stored_weights(file), precision.value_or(Precision::float32),
                                            file.string(), kernels);
  }
  if (precision.value_or(*packed) != *packed) {
    throw Error("precision",
                fmt::format("the weights in {} are packed as {}, and cannot be used as {}",
                            printable(directory.string()), precision_name(*packed), precision_name(*precision)),
                "leave the precision out, or use the model that they were packed from");
  }
  PackedWeights weights(file, *packed, kernels, packed_in);
  return std::unique_ptr<InferenceModel>(new InferenceModel(settings, weights, *packed, kernels));
}

void InferenceModel::pack(const std::filesystem::path& directory, const ModelSettings& settings, Precision precision,
                          const std::filesystem::path& file) {
  refuse_fp16(precision);
  verify_model_directory(directory);
  const auto trained = directory / weights_name;
  const auto& kernels = *available_kernels().front();
  TrainedWeights source(settings.resolved(), stored_weights(trained), precision, trained.string(), kernels);
  PackedWeightsWriter writer(source, precision);
  InferenceModel model(settings, precision, kernels);
  model.read(writer);
  auto metadata = bound_metadata(directory / config_name);
  metadata.merge(provenance(directory));
  writer.write(file, std::move(metadata));
}

void InferenceModel::check(std::span<const int64_t> source, int64_t max_length) const {
  check_sentence(settings_, source, max_length);
}

void InferenceModel::embed_source(int64_t token, int64_t position, float* x) const {
  embed(*source_embedding_, *source_positions_, source_norm_, token, position, x);
}

void InferenceModel::embed_target(int64_t token, int64_t position, float* x) const {
  embed(*target_embedding_, *target_positions_, target_norm_, token, position, x);
}

void InferenceModel::embed(const PackedMatrix& embedding, const PositionTable& positions, const Norm& norm,
                           int64_t token, int64_t position, float* x) const {
  check_token(token, embedding);
  embedding.row(token, embedding_scale_, x);
  positions.add(position, x);
  if (norm.gain.empty()) return;
  const std::vector<float> nothing(static_cast<size_t>(settings_.d_model));
  kernels_.add_and_normalise(x, nothing.data(), settings_.d_model, norm.gain.data(), norm.bias.data(),
                             static_cast<float>(settings_.layer_norm_epsilon), x);
}

}  // namespace transformer
