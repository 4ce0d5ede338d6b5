#include "transformer/decoding/inference_model.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "transformer/base/error.h"
#include "transformer/base/finite.h"
#include "transformer/model/positional_encoding.h"
#include "transformer/model/transformer.h"

namespace transformer {

/// Named weights, of a file or in memory, to be taken one by one; each may be taken once.
class InferenceModel::Weights {
 public:
  /// A weight of the expected shape, whose rows are floating-point numbers of any type.
  struct Weight {
    at::ScalarType type;
    std::vector<int64_t> shape;
    /// float32, contiguous, on the CPU. Throws Error where a number is not finite: int8 would make an ordinary one of
    /// it.
    std::function<at::Tensor(int64_t first, int64_t count)> rows;
  };

  Weights(TensorMap tensors, std::string origin) : origin_(std::move(origin)) {
    for (auto& [name, tensor] : tensors) {
      weights_[name] = {tensor.scalar_type(), tensor.sizes().vec(),
                        [tensor](int64_t first, int64_t count) { return tensor.detach().narrow(0, first, count); }};
    }
  }

  explicit Weights(const std::filesystem::path& file) : origin_(file.string()) {
    const auto reader = std::make_shared<TensorReader>(file);
    for (const auto& [name, entry] : reader->entries()) {
      weights_[name] = {entry.type, entry.shape, [reader, name = name](int64_t first, int64_t count) {
                          return reader->read_rows(name, first, count);
                        }};
    }
  }

  Weight take(const std::string& name, std::initializer_list<int64_t> shape) {
    const auto found = weights_.find(name);
    if (found == weights_.end()) refuse(fmt::format("the weights of '{}' are missing", name));
    auto weight = std::move(found->second);
    if (!std::equal(shape.begin(), shape.end(), weight.shape.begin(), weight.shape.end())) {
      refuse(fmt::format("'{}' has shape [{}], the model's settings ask for [{}]", name, fmt::join(weight.shape, ", "),
                         fmt::join(shape, ", ")));
    }
    if (!c10::isFloatingType(weight.type)) {
      refuse(fmt::format("'{}' holds integers, weights are floating-point numbers", name));
    }
    weights_.erase(found);
    weight.rows = [stored = std::move(weight.rows), origin = origin_, name](int64_t first, int64_t count) {
      auto rows = stored(first, count).to(at::kCPU, at::kFloat).contiguous();
      check_finite(origin, name, rows);
      return rows;
    };
    return weight;
  }

  /// All of a weight's numbers.
  std::vector<float> numbers(const std::string& name, std::initializer_list<int64_t> shape) {
    const auto tensor = take(name, shape).rows(0, *shape.begin());
    const auto* values = tensor.const_data_ptr<float>();
    return {values, values + tensor.numel()};
  }

  void check_all_taken() const {
    if (!weights_.empty()) refuse(fmt::format("'{}' is no parameter of this model", weights_.begin()->first));
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(origin_, what, "the file belongs to a model of other settings");
  }

  std::map<std::string, Weight> weights_;
  std::string origin_;
};

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

InferenceModel::InferenceModel(const ModelSettings& settings, TensorMap weights, Precision precision,
                               const std::string& origin, const Kernels& kernels)
    : InferenceModel(settings, Weights(std::move(weights), origin), precision, kernels) {}

InferenceModel::InferenceModel(const ModelSettings& given, Weights weights, Precision precision, const Kernels& kernels)
    : settings_(given.resolved()), precision_(precision), kernels_(kernels) {
  if (precision == Precision::fp16) throw Error("precision", "fp16 is for decoding on a GPU", "use bf16");
  const auto& s = settings_;
  using Shared = ModelSettings::SharedEmbeddings;
  const auto memory = std::make_shared<WeightMemory>();
  // Rows of a weight from `first` on.
  const auto pack_rows = [&](const Weights::Weight& weight, int64_t first, int64_t count, const float* bias) {
    at::Tensor rows;
    const auto source = [&](int64_t row, int64_t some) {
      rows = weight.rows(first + row, some);
      return rows.const_data_ptr<float>();
    };
    PackedMatrix matrix(kernels, precision, count, weight.shape[1], source, bias, memory);
    bytes_ += matrix.bytes();
    return matrix;
  };
  const auto pack = [&](const Weights::Weight& weight, const float* bias = nullptr) {
    return pack_rows(weight, 0, weight.shape[0], bias);
  };

  embedding_scale_ = static_cast<float>(std::sqrt(static_cast<double>(s.d_model)));
  const auto pack_embedding = [&](int which, const std::string& name, int64_t size) {
    embeddings_[which] = pack(weights.take(name + ".weight", {size, s.d_model}));
    return &embeddings_[which];
  };
  if (s.shared_embeddings == Shared::all) {
    source_embedding_ = target_embedding_ = projection_ = pack_embedding(0, "embedding", s.target_vocabulary_size);
  } else {
    source_embedding_ = pack_embedding(0, "source_embedding", s.source_vocabulary_size);
    target_embedding_ = projection_ = pack_embedding(1, "target_embedding", s.target_vocabulary_size);
    if (s.shared_embeddings == Shared::none) projection_ = pack_embedding(2, "projection", s.target_vocabulary_size);
  }

  for (auto [positions, name] : {std::pair{&source_positions_, "source_positions.weight"},
                                 std::pair{&target_positions_, "target_positions.weight"}}) {
    positions->learned = s.positions == ModelSettings::Positions::learned;
    constexpr int64_t usual_length = 512;  // positions after it are computed when they come
    positions->count = positions->learned ? s.max_positions : usual_length;
    if (positions->learned) {
      positions->table = weights.numbers(name, {s.max_positions, s.d_model});
    } else {
      const auto table = sinusoids(0, usual_length, s.d_model).to(at::kFloat).contiguous();
      positions->table.assign(table.const_data_ptr<float>(), table.const_data_ptr<float>() + table.numel());
    }
  }

  const int64_t key_rows = s.heads * s.d_k, value_rows = s.heads * s.d_v;
  const auto bias_of = [&](const std::string& name, int64_t size) {
    return s.projection_bias ? weights.numbers(name, {size}) : std::vector<float>{};
  };
  const auto at_row = [](const std::vector<float>& bias, int64_t row) {
    return bias.empty() ? nullptr : bias.data() + row;
  };
  const auto attention_output = [&](const std::string& name) {
    const auto bias = bias_of(name + ".output.bias", s.d_model);
    return pack(weights.take(name + ".output.weight", {s.d_model, value_rows}), at_row(bias, 0));
  };
  const auto query_key_value = [&](const std::string& name) {
    const auto bias = bias_of(name + ".input_bias", 2 * key_rows + value_rows);
    return pack(weights.take(name + ".input_weight", {2 * key_rows + value_rows, s.d_model}), at_row(bias, 0));
  };
  const auto norm = [&](const std::string& name) {
    return Norm{weights.numbers(name + ".norm.weight", {s.d_model}), weights.numbers(name + ".norm.bias", {s.d_model})};
  };
  const auto feed_forward = [&](const std::string& name) {
    const auto inner_bias = weights.numbers(name + ".inner.bias", {s.d_ff});
    const auto outer_bias = weights.numbers(name + ".outer.bias", {s.d_model});
    FeedForward result;
    result.inner = pack(weights.take(name + ".inner.weight", {s.d_ff, s.d_model}), inner_bias.data());
    result.outer = pack(weights.take(name + ".outer.weight", {s.d_model, s.d_ff}), outer_bias.data());
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
      const int64_t rows = 2 * key_rows + value_rows;
      const auto bias = bias_of(name + "memory_attention.input_bias", rows);
      const auto weight = weights.take(name + "memory_attention.input_weight", {rows, s.d_model});
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
  weights.check_all_taken();
}

std::unique_ptr<InferenceModel> InferenceModel::load(const std::filesystem::path& directory,
                                                     const ModelSettings& settings, Precision precision) {
  verify_model_directory(directory);
  return std::unique_ptr<InferenceModel>(
      new InferenceModel(settings, Weights(directory / "model.safetensors"), precision, *available_kernels().front()));
}

void InferenceModel::embed_source(int64_t token, int64_t position, float* x) const {
  embed(*source_embedding_, source_positions_, token, position, x);
}

void InferenceModel::embed_target(int64_t token, int64_t position, float* x) const {
  embed(*target_embedding_, target_positions_, token, position, x);
}

void InferenceModel::embed(const PackedMatrix& embedding, const Positions& positions, int64_t token, int64_t position,
                           float* x) const {
  if (token < 0 || token >= embedding.outputs()) {
    throw Error(fmt::format("word piece {}", token),
                fmt::format("is not one of the vocabulary's {} pieces", embedding.outputs()));
  }
  embedding.row(token, embedding_scale_, x);
  const int64_t width = settings_.d_model;
  if (position < positions.count) {
    const float* encoding = positions.table.data() + position * width;
    for (int64_t i = 0; i < width; ++i) x[i] += encoding[i];
    return;
  }
  if (positions.learned) {
    throw Error("model.max_positions",
                fmt::format("a sequence of {} tokens is longer than the {} positions this model learned", position + 1,
                            positions.count),
                "split the line, or train with more positions or with sinusoidal ones");
  }
  const auto encoding = sinusoids(position, 1, width).to(at::kFloat).contiguous();
  for (int64_t i = 0; i < width; ++i) x[i] += encoding.const_data_ptr<float>()[i];
}

}  // namespace transformer
