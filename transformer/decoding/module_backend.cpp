#include "transformer/decoding/module_backend.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "transformer/architecture/longest_text.h"
#include "transformer/base/error.h"
#include "transformer/inference/inference_model.h"
#include "transformer/model/evaluating.h"

namespace transformer {

using torch::Tensor;

namespace {

/// The decoder's state, whose rows follow the search's live hypotheses.
class CachedDecoding {
 public:
  CachedDecoding(Transformer model, const Tensor& source,
                 std::vector<std::shared_ptr<const OutputConstraint>> constraints)
      : model_(std::move(model)), device_(source.device()), constraints_(std::move(constraints)) {
    c10::InferenceMode inference;
    cache_ = model_->start(model_->encode(source));
    sentences_.resize(source.size(0));
    std::iota(sentences_.begin(), sentences_.end(), 0);
  }

  Continuations step(std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) {
    c10::InferenceMode inference;
    follow(parents);
    constrain(tokens, parents);
    const auto logits = model_->step(tensor(tokens), cache_);  // [N, V]
    auto log_probabilities =
        logits.log_softmax(-1, logits.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
    static_assert(TransformerImpl::padding_id == Vocabulary::padding);
    log_probabilities.narrow(1, 0, Vocabulary::first_written).fill_(-std::numeric_limits<double>::infinity());
    const int64_t returned = std::min(width, log_probabilities.size(1));
    if (!constraints_.empty()) return best_allowed(log_probabilities.to(torch::kCPU, torch::kDouble), returned);
    const auto [values, indices] = log_probabilities.topk(returned, 1);  // [N, returned]
    // The only wait of a step for a device: both in one copy. Ids are whole numbers far below 2^53.
    const auto found = torch::stack({indices.to(torch::kDouble), values.to(torch::kDouble)}).to(torch::kCPU);
    const auto* ids = found.const_data_ptr<double>();
    const auto* best = ids + indices.numel();
    return {returned, {ids, ids + indices.numel()}, {best, best + indices.numel()}};
  }

 private:
  Tensor tensor(std::span<const int64_t> numbers) const {
    return torch::tensor(at::ArrayRef<int64_t>(numbers.data(), numbers.size())).to(device_);
  }

  /// Takes every row's constraint on to its newest token.
  void constrain(std::span<const int64_t> tokens, std::span<const int64_t> parents) {
    if (constraints_.empty()) return;
    std::vector<std::shared_ptr<const OutputConstraint>> next;
    for (size_t row = 0; row < parents.size(); ++row) {
      const auto& before = constraints_[parents[row]];
      next.push_back(before && tokens[row] != Vocabulary::begin ? state_after(before, tokens[row]) : before);
    }
    constraints_ = std::move(next);
    // The way of all tokens is the faster one.
    if (std::all_of(constraints_.begin(), constraints_.end(), [](const auto& one) { return !one || one->free(); })) {
      constraints_.clear();
    }
  }

  /// Each row's best `width` among what its constraint allows, or all tokens; where there are fewer, minus infinity.
  Continuations best_allowed(const Tensor& log_probabilities, int64_t width) const {
    const int64_t vocabulary = log_probabilities.size(1);
    Continuations best;
    best.width = width;
    for (int64_t row = 0; row < log_probabilities.size(0); ++row) {
      const auto* values = log_probabilities.const_data_ptr<double>() + row * vocabulary;
      std::vector<Continuations::Candidate> candidates;
      if (const auto& constraint = constraints_[row]; constraint && !constraint->free()) {
        for (const int64_t token : allowed_tokens(*constraint, vocabulary)) {
          candidates.push_back({constraint->told() ? 0 : values[token], token});
        }
      } else {
        for (int64_t token = 0; token < vocabulary; ++token) candidates.push_back({values[token], token});
      }
      best.add_row(std::move(candidates));
    }
    return best;
  }

  /// Makes row i the continuation of row `parents[i]`.
  void follow(std::span<const int64_t> parents) {
    bool moved = parents.size() != sentences_.size();
    bool left = moved;  // a row now belongs to another sentence
    std::vector<int64_t> sentences;
    for (size_t row = 0; row < parents.size(); ++row) {
      sentences.push_back(sentences_[parents[row]]);
      if (moved) continue;
      moved = parents[row] != static_cast<int64_t>(row);
    }
    left = left || sentences != sentences_;
    sentences_ = std::move(sentences);
    if (!moved) return;
    // Hypotheses of one sentence share its memory.
    cache_.reorder(tensor(parents), /*memory=*/left);
  }

  Transformer model_;
  torch::Device device_;
  DecoderCache cache_;
  std::vector<int64_t> sentences_;                                    // of every row
  std::vector<std::shared_ptr<const OutputConstraint>> constraints_;  // of every row, in the beginning every sentence
};

/// What modules on `device` compute in.
torch::ScalarType module_type(Precision precision, const torch::Device& device) {
  if (precision == Precision::fp16 && !device.is_cpu()) return torch::kHalf;
  if (precision == Precision::bf16) return torch::kBFloat16;
  if (precision == Precision::float32) return torch::kFloat;
  if (device.is_cpu()) throw Error("precision", "the modules decode in float32 or bf16 on a CPU", "use bf16");
  throw Error("precision", "int8 is for decoding on a CPU", "use float32, bf16 or fp16");
}

/// How many of `requests`, in the order of `places` from `first` on, are decoded at once: as many as asked for, while
/// their cached keys and values stay within a budget.
size_t batch_size(std::span<const DecodingRequest> requests, std::span<const size_t> places, size_t first,
                  const ModelSettings& s, const Tensor& parameter) {
  const double budget = parameter.is_cpu() ? 1e9 : 8e9;
  const double token = static_cast<double>(s.decoder_layers * s.heads * (s.d_k + s.d_v)) * parameter.element_size();
  size_t size = 0;
  double hypotheses = 0, length = 0;
  while (first + size < places.size()) {
    const auto& request = requests[places[first + size]];  // the longest so far
    if (size >= static_cast<size_t>(request.settings.batch_sentences)) break;
    hypotheses = std::max(hypotheses, static_cast<double>(request.hypotheses()));
    length = std::max(length, static_cast<double>(request.told + request.max_length));
    const bool recurrent = s.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru;
    const double tokens = static_cast<double>(request.source.size()) + (recurrent ? 1 : length);
    if (size > 0 && static_cast<double>(size + 1) * hypotheses * tokens * token > budget) break;
    ++size;
  }
  return size;
}

}  // namespace

StepFunction transformer_step(Transformer model, const Tensor& source,
                              std::vector<std::shared_ptr<const OutputConstraint>> constraints) {
  auto decoding = std::make_shared<CachedDecoding>(std::move(model), source, std::move(constraints));
  return [decoding](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) {
    return decoding->step(tokens, parents, width);
  };
}

std::vector<std::vector<Hypothesis>> ModuleBackend::decode(std::vector<DecodingRequest> requests) const {
  for (const auto& request : requests) {
    request.check(model_->projection_weight().size(0));
    check_for_modules(request.settings);
    check_sentence(model_->settings(), request.source, request.told + request.most_tokens());
  }
  std::vector<std::vector<Hypothesis>> results(requests.size());
  std::vector<size_t> places(requests.size());  // in order of length: little padding is computed
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return requests[a].source.size() < requests[b].source.size(); });
  const Evaluating evaluating(*model_);
  const auto& parameter = model_->projection_weight();
  for (size_t first = 0, size = 0; first < places.size(); first += size) {
    size = batch_size(requests, places, first, model_->settings(), parameter);
    const auto longest = static_cast<int64_t>(requests[places[first + size - 1]].source.size());
    auto source = torch::full({static_cast<int64_t>(size), longest}, Vocabulary::padding, torch::kInt64);  // [B, S]
    std::vector<DecodingRequest> chosen;
    std::vector<std::shared_ptr<const OutputConstraint>> constraints;
    for (size_t row = 0; row < size; ++row) {
      chosen.push_back(std::move(requests[places[first + row]]));
      std::copy(chosen.back().source.begin(), chosen.back().source.end(),
                source.mutable_data_ptr<int64_t>() + static_cast<int64_t>(row) * longest);
      constraints.push_back(chosen.back().constraint);
    }
    const bool constrained = std::any_of(constraints.begin(), constraints.end(), [](const auto& one) { return one; });
    if (!constrained) constraints.clear();
    auto found = beam_search(transformer_step(model_, source.to(parameter.device()), std::move(constraints)), chosen,
                             Vocabulary::begin);
    for (size_t row = 0; row < size; ++row) results[places[first + row]] = std::move(found[row]);
  }
  return results;
}

std::unique_ptr<DecodingBackend> load_module_backend(const std::filesystem::path& directory, c10::Device device,
                                                     Precision precision) {
  const auto type = module_type(precision, device);
  auto model = load_transformer(directory, device);
  model->to(type);
  return std::make_unique<ModuleBackend>(std::move(model));
}

StoredWeights stored_weights(const TensorMap& weights) {
  StoredWeights stored;
  for (const auto& [name, tensor] : weights) {
    // Packing asks only whether they are numbers: rows come as float32 whatever they are.
    const auto type = tensor.is_floating_point() ? ElementType::float32 : ElementType::int64;
    stored[name] = {type, tensor.sizes().vec(),
                    [tensor = tensor.detach()](int64_t first, int64_t count, float* numbers) {
                      const auto rows = tensor.narrow(0, first, count).to(torch::kCPU, torch::kFloat).contiguous();
                      std::copy_n(rows.const_data_ptr<float>(), rows.numel(), numbers);
                    }};
  }
  return stored;
}

Translator module_translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings) {
  return {std::make_shared<ModuleBackend>(std::move(model)), std::move(vocabularies), settings};
}

Translator packed_translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings,
                             const InferenceOptions& inference) {
  const auto device = model->projection_weight().device();
  if (device.is_cpu()) {
    const auto packed =
        std::make_shared<const InferenceModel>(model->settings(), stored_weights(weights_of(*model)),
                                               inference.precision.value_or(Precision::float32), "the model in memory");
    return {packed, std::move(vocabularies), settings, inference.threads};
  }
  if (module_type(inference.precision.value_or(Precision::float32), device) !=
      model->projection_weight().scalar_type()) {
    throw Error("precision", "the model in memory is decoded in the type of its weights", "convert it before");
  }
  return module_translator(std::move(model), std::move(vocabularies), settings);
}

}  // namespace transformer
