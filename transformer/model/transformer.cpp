#include "transformer/model/transformer.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/parameter_count.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/checked.h"
#include "transformer/base/error.h"
#include "transformer/base/memory.h"
#include "transformer/base/model_files.h"
#include "transformer/base/tensor_file.h"
#include "transformer/model/fused/fused_layers.h"
#include "transformer/model/named_parameters.h"

// libc10 and libsentencepiece each export a variable of this name: an int of 4 bytes there, an object of 32 here. The
// dynamic linker makes one of the two in programs that link both, LibTorch's as a rule, and SentencePiece's constructor
// then writes over what lies behind it: LibTorch's switch for ending the process where it should throw, for one. A
// definition in the program goes before both; this one has room for either.
extern "C" {
extern char FLAGS_minloglevel[64];
alignas(64) char FLAGS_minloglevel[64];
}

namespace transformer {

using torch::Tensor;

namespace {

void convert(TensorMap& weights, std::optional<torch::ScalarType> type) {
  if (!type) return;
  if (!at::isFloatingType(*type)) {
    throw std::invalid_argument(fmt::format("weights are not written as {}", c10::toString(*type)));
  }
  for (auto& [name, tensor] : weights) {
    if (tensor.scalar_type() == *type) continue;
    const auto before = std::exchange(tensor, tensor.to(*type));
    if (all_finite(tensor) || !all_finite(before)) continue;
    throw Error(fmt::format("weight '{}'", name), fmt::format("is not finite as {}", c10::toString(*type)),
                "choose a wider type");
  }
}

// Parameters are written as soon as they are allocated, and a system that has promised more memory than it has ends the
// process then.
void check_memory(const ModelSettings& settings) {
  const auto bytes = parameter_count(settings) * static_cast<int64_t>(sizeof(float));
  constexpr int64_t worth_asking = int64_t{1} << 28;
  if (bytes < worth_asking) return;
  if (const int64_t available = available_bytes(); bytes > available) {
    constexpr double gigabyte = 1e9;
    throw Failure(
        "model",
        fmt::format("its {} parameters take {:.1f} GB, and {:.1f} GB of memory are free", parameter_count(settings),
                    static_cast<double>(bytes) / gigabyte, static_cast<double>(available) / gigabyte),
        "make it smaller, or use a larger machine");
  }
}

// A file whose settings ask for more than it holds is refused before there is a model of that size. What is missing,
// or of another shape, is named when it is loaded.
void check_size(const std::filesystem::path& file, const ModelSettings& settings) {
  const int64_t asked = parameter_count(settings);
  double held = 0;  // the file's own shapes, each of which fits, may together be more than an integer holds
  const TensorReader reader(file);
  for (const auto& [name, entry] : reader.entries()) held += static_cast<double>(*checked_product(entry.shape));
  // Twice: a file that merely lacks something is better refused by the name of what it lacks.
  if (static_cast<double>(asked) > 2 * held + 1e6) {
    throw Error(file.string(), fmt::format("holds {} numbers, and the model's settings ask for {}", held, asked),
                "the file belongs to a model of other settings");
  }
}

}  // namespace

TransformerImpl::TransformerImpl(const ModelSettings& given, const LayerFactories& layers)
    : settings_(given.resolved()) {
  const auto& s = settings_;
  check_memory(s);
  using Shared = ModelSettings::SharedEmbeddings;
  // A shared matrix is registered once, under one name, so that it is counted, optimised and saved once.
  if (s.shared_embeddings == Shared::all) {
    source_embedding_ = target_embedding_ = projection_ =
        register_module("embedding", TokenEmbedding(s.target_vocabulary_size, s.d_model, s.scaled_embeddings));
  } else {
    source_embedding_ =
        register_module("source_embedding", TokenEmbedding(s.source_vocabulary_size, s.d_model, s.scaled_embeddings));
    target_embedding_ = projection_ =
        register_module("target_embedding", TokenEmbedding(s.target_vocabulary_size, s.d_model, s.scaled_embeddings));
    if (s.shared_embeddings == Shared::none) {
      projection_ = register_module("projection", TokenEmbedding(s.target_vocabulary_size, s.d_model));
    }
  }
  if (s.output_bias) output_bias_ = register_parameter("output_bias", torch::zeros({s.target_vocabulary_size}));
  source_positions_ = register_module("source_positions", PositionalEncoding(s.positions, s.d_model, s.max_positions));
  target_positions_ = register_module("target_positions", PositionalEncoding(s.positions, s.d_model, s.max_positions));
  if (s.embedding_normalization) {
    source_norm_ = register_module("source_embeddings", EmbeddingNorm(s.d_model, s.layer_norm_epsilon));
    target_norm_ = register_module("target_embeddings", EmbeddingNorm(s.d_model, s.layer_norm_epsilon));
  }
  encoder_ = register_module("encoder", Encoder(s, layers.encoder));
  decoder_ = register_module("decoder", Decoder(s, layers.decoder));
}

Tensor TransformerImpl::with_symbol_dropout(const Tensor& ids) const {
  if (!is_training() || settings_.symbol_dropout == 0) return ids;
  const auto dropped = torch::rand(ids.sizes(), ids.options().dtype(torch::kFloat)) < settings_.symbol_dropout;
  return ids.masked_fill(dropped & (ids != padding_id) & (ids != begin_id), unknown_id);
}

Tensor TransformerImpl::embed(TokenEmbedding& embedding, PositionalEncoding& positions, EmbeddingNorm& norm,
                              const Tensor& ids, int64_t first) {
  TORCH_CHECK(ids.scalar_type() == torch::kInt64, "ids are int64, and these ", ids.scalar_type());
  if (is_training() && !norm && settings_.positions == ModelSettings::Positions::sinusoidal &&
      fusable_embedding(embedding->weight(), ids)) {
    const auto weight = embedding->used_weight();
    return fused_embedding(weight, ids, positions->forward(first, ids.size(1), weight), embedding->scale(),
                           settings_.dropout);
  }
  auto tokens = embedding->forward(ids);  // [B, T, D]
  auto sum = tokens + positions->forward(first, ids.size(1), tokens);
  if (norm) sum = norm->forward(sum);
  return torch::dropout(sum, settings_.dropout, is_training());
}

TransformerImpl::Encoded TransformerImpl::encode(const Tensor& source, bool weights, std::optional<bool> padded) {
  Encoded encoded;
  if (padded.value_or(true)) {
    const auto tokens = source != padding_id;  // [B, S]
    // Without padding attention needs no mask and takes a faster path; asking a GPU would make the host wait.
    const bool known = padded.has_value() || !source.is_cpu();
    if (known || !tokens.all().item<bool>()) encoded.mask = tokens.unsqueeze(1).unsqueeze(1);
  }
  auto output =
      encoder_->forward(embed(source_embedding_, source_positions_, source_norm_, with_symbol_dropout(source), 0),
                        {.mask = encoded.mask, .weights = weights});
  encoded.memory = output.memory;
  encoded.weights = std::move(output.weights);
  return encoded;
}

DecoderImpl::Output TransformerImpl::decode(const Tensor& target_input, const Encoded& encoded, bool weights) {
  return decoder_->forward(
      embed(target_embedding_, target_positions_, target_norm_, with_symbol_dropout(target_input), 0), encoded.memory,
      encoded.mask, weights);
}

Tensor TransformerImpl::project(const Tensor& hidden) {
  return projection_->project(hidden, output_bias_);
}

const Tensor& TransformerImpl::projection_weight() const {
  return projection_->weight();
}

TransformerImpl::Projection TransformerImpl::projection_of(const Tensor& hidden) const {
  return {projection_->used_hidden(hidden), projection_->used_weight(), output_bias_};
}

Tensor TransformerImpl::forward(const Tensor& source, const Tensor& target_input) {
  return project(decode(target_input, encode(source)).values);
}

DecoderCache TransformerImpl::start(const Encoded& encoded) {
  return decoder_->start(encoded.memory, encoded.mask);
}

Tensor TransformerImpl::step(const Tensor& tokens, DecoderCache& cache) {
  auto x = embed(target_embedding_, target_positions_, target_norm_, tokens.unsqueeze(1), cache.length);  // [N, 1, D]
  return project(decoder_->step(x, cache).squeeze(1));
}

void TransformerImpl::set_recompute(bool on) {
  encoder_->set_recompute(on);
  decoder_->set_recompute(on);
}

void TransformerImpl::set_quantization(bool on) {
  for (const auto& module : modules()) {
    if (auto* aware = dynamic_cast<QuantizationAware*>(module.get())) aware->set_quantization(on);
  }
}

int64_t TransformerImpl::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

TensorMap weights_of(const torch::nn::Module& module) {
  TensorMap weights;
  for (const auto& [name, parameter] : named_parameters(module)) weights.emplace(name, parameter.detach());
  return weights;
}

void write_weights(const std::filesystem::path& file, TensorMap weights, std::optional<torch::ScalarType> type) {
  convert(weights, type);
  write_tensors(file, weights, {{"format", "transformer-model-1"}});
}

void write_bound_weights(const std::filesystem::path& file, TensorMap weights, const std::filesystem::path& config_yaml,
                         std::optional<torch::ScalarType> type, const std::map<std::string, std::string>& provenance) {
  convert(weights, type);
  auto metadata = bound_metadata(config_yaml);
  metadata.insert(provenance.begin(), provenance.end());
  write_tensors(file, weights, metadata);
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& file, torch::ScalarType type) {
  write_weights(file, weights_of(module), type);
}

void load_weights(torch::nn::Module& module, const std::filesystem::path& file) {
  // All is checked before anything is written, so that a model never ends up half loaded.
  std::map<std::string, std::vector<int64_t>> shapes;
  const auto parameters = named_parameters(module);
  for (const auto& [name, parameter] : parameters) shapes[name] = parameter.sizes().vec();
  check_weights(stored_weights(file), shapes, file.string());
  const auto tensors = read_tensors(file).tensors;
  for (const auto& [name, parameter] : parameters) {
    check_finite(file.string(), name, tensors.at(name).to(parameter.scalar_type()));
  }
  torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) torch::Tensor(parameter).copy_(tensors.at(name));
}

Transformer load_transformer(const std::filesystem::path& directory, torch::Device device) {
  const auto model_settings = read_model_settings(directory);
  verify_model_directory(directory);
  check_size(directory / weights_name, model_settings);
  Transformer model(model_settings);
  load_weights(*model, directory / weights_name);
  model->to(device);
  model->eval();
  return model;
}

}  // namespace transformer
