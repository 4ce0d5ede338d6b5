#include "transformer/architecture/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "transformer/base/checked.h"
#include "transformer/base/error.h"
#include "transformer/base/finite.h"

namespace transformer {

std::map<std::string, std::vector<int64_t>> weight_shapes(const ModelSettings& s) {
  std::map<std::string, std::vector<int64_t>> shapes;
  const auto linear = [&](const std::string& name, int64_t inputs, int64_t outputs, bool bias) {
    shapes[name + ".weight"] = {outputs, inputs};
    if (bias) shapes[name + ".bias"] = {outputs};
  };
  const auto norm = [&](const std::string& name) {
    shapes[name + ".norm.weight"] = {s.d_model};
    shapes[name + ".norm.bias"] = {s.d_model};
  };
  const auto attention = [&](const std::string& name) {
    const int64_t rows = s.heads * (2 * s.d_k + s.d_v);
    shapes[name + ".input_weight"] = {rows, s.d_model};
    if (s.projection_bias) shapes[name + ".input_bias"] = {rows};
    linear(name + ".output", s.heads * s.d_v, s.d_model, s.projection_bias);
    if (s.compatibility == ModelSettings::Compatibility::additive) {
      shapes[name + ".additive_query"] = shapes[name + ".additive_key"] = {s.heads, s.d_k, s.d_k};
      shapes[name + ".additive_vector"] = {s.heads, s.d_k};
    }
  };
  const auto feed_forward = [&](const std::string& name) {
    if (s.feed_forward == ModelSettings::FeedForward::attention_over_parameters) {
      linear(name + ".query", s.d_model, s.parameter_heads * s.parameter_d_k, s.projection_bias);
      shapes[name + ".keys"] = {s.parameter_heads, s.parameter_pairs, s.parameter_d_k};
      shapes[name + ".values"] = {s.parameter_heads, s.parameter_pairs, s.parameter_d_v};
      linear(name + ".output", s.parameter_heads * s.parameter_d_v, s.d_model, s.projection_bias);
      return;
    }
    linear(name + ".inner", s.d_model, s.d_ff, true);
    if (s.activation == ModelSettings::Activation::swiglu) linear(name + ".gate", s.d_model, s.d_ff, true);
    linear(name + ".outer", s.d_ff, s.d_model, true);
  };

  using Shared = ModelSettings::SharedEmbeddings;
  if (s.shared_embeddings == Shared::all) {
    shapes["embedding.weight"] = {s.target_vocabulary_size, s.d_model};
  } else {
    shapes["source_embedding.weight"] = {s.source_vocabulary_size, s.d_model};
    shapes["target_embedding.weight"] = {s.target_vocabulary_size, s.d_model};
    if (s.shared_embeddings == Shared::none) shapes["projection.weight"] = {s.target_vocabulary_size, s.d_model};
  }
  if (s.output_bias) shapes["output_bias"] = {s.target_vocabulary_size};
  if (s.positions == ModelSettings::Positions::learned) {
    shapes["source_positions.weight"] = shapes["target_positions.weight"] = {s.max_positions, s.d_model};
  }
  if (s.embedding_normalization) {
    norm("source_embeddings");
    norm("target_embeddings");
  }
  for (int64_t i = 0; i < s.encoder_layers; ++i) {
    const auto layer = fmt::format("encoder.layers.{}.", i);
    attention(layer + "self_attention");
    norm(layer + "after_self_attention");
    feed_forward(layer + "feed_forward");
    norm(layer + "after_feed_forward");
  }
  for (int64_t i = 0; i < s.decoder_layers; ++i) {
    const auto layer = fmt::format("decoder.layers.{}.", i);
    if (s.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru) {
      shapes[layer + "recurrence.input_weight"] = {2 * s.d_model, s.d_model};
      shapes[layer + "recurrence.forget_bias"] = {s.d_model};
    } else {
      attention(layer + "self_attention");
    }
    norm(layer + "after_self_attention");
    attention(layer + "memory_attention");
    norm(layer + "after_memory_attention");
    feed_forward(layer + "feed_forward");
    norm(layer + "after_feed_forward");
  }
  if (s.normalization == ModelSettings::Normalization::pre) {
    norm("encoder");
    norm("decoder");
  }
  return shapes;
}

StoredWeights stored_weights(const std::filesystem::path& file) {
  const auto reader = std::make_shared<const TensorReader>(file);
  if (reader->metadata().contains(packed_weights_key)) {
    throw Error(file.string(),
                "its weights were rounded and packed for decoding on CPUs, and are good for nothing else",
                "use the model that they were packed from");
  }
  StoredWeights weights;
  for (const auto& [name, entry] : reader->entries()) {
    const int64_t rows = entry.shape.empty() ? 0 : entry.shape[0];
    const int64_t width = rows == 0 ? 0 : entry.elements() / rows;
    weights[name] = {entry.type, entry.shape,
                     [reader, name = name, type = entry.type, width](int64_t first, int64_t count, float* numbers) {
                       if (type == ElementType::float32) {
                         reader->read_rows(name, first, count, numbers);
                         return;
                       }
                       std::vector<unsigned char> bytes(static_cast<size_t>(count * width * element_size(type)));
                       reader->read_rows(name, first, count, bytes.data());
                       to_float(type, bytes.data(), count * width, numbers);
                     }};
  }
  return weights;
}

void check_weights(const StoredWeights& weights, const std::map<std::string, std::vector<int64_t>>& shapes,
                   const std::string& origin) {
  const auto refuse = [&](const std::string& what) {
    throw Error(origin, what, "the file belongs to a model of other settings");
  };
  for (const auto& [name, shape] : shapes) {
    const auto found = weights.find(name);
    if (found == weights.end()) {
      refuse(fmt::format("the weights of '{}' are missing", name));
    } else if (found->second.shape != shape) {
      refuse(fmt::format("'{}' has shape [{}], the model's settings ask for [{}]", name,
                         fmt::join(found->second.shape, ", "), fmt::join(shape, ", ")));
    } else if (!is_floating_point(found->second.type)) {
      refuse(fmt::format("'{}' holds integers, weights are floating-point numbers", name));
    }
  }
  for (const auto& [name, weight] : weights) {
    if (!shapes.contains(name)) refuse(fmt::format("'{}' is no parameter of this model", name));
  }
}

std::vector<float> read_weight(const StoredWeight& weight, const std::string& name, const std::string& origin) {
  std::vector<float> numbers(static_cast<size_t>(checked_product(weight.shape).value()));
  weight.rows(0, weight.shape.at(0), numbers.data());
  if (!all_finite(numbers)) refuse_not_finite(origin, name);
  return numbers;
}

}  // namespace transformer
