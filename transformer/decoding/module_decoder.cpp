#include "transformer/decoding/translator.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/decoding/continuous_search.h"
#include "transformer/decoding/inference_model.h"
#include "transformer/model/longest_text.h"
#include "transformer/model/model_directory.h"

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
    static_assert(TransformerImpl::padding_id == Vocabulary::padding && Vocabulary::padding == 0);
    log_probabilities.narrow(1, 0, Vocabulary::begin + 1).fill_(-std::numeric_limits<double>::infinity());
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
      next.push_back(before && tokens[row] != Vocabulary::begin ? state_after(*before, tokens[row]) : before);
    }
    constraints_ = std::move(next);
  }

  /// Each row's best `width` among what its constraint allows, or all tokens; where there are fewer, minus infinity.
  Continuations best_allowed(const Tensor& log_probabilities, int64_t width) const {
    const int64_t vocabulary = log_probabilities.size(1);
    Continuations best;
    best.width = width;
    for (int64_t row = 0; row < log_probabilities.size(0); ++row) {
      const auto* values = log_probabilities.const_data_ptr<double>() + row * vocabulary;
      std::vector<Continuations::Candidate> candidates;
      if (const auto& constraint = constraints_[row]) {
        for (const int64_t token : allowed_tokens(*constraint, vocabulary)) {
          candidates.push_back({values[token], token});
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
    const auto rows = tensor(parents);
    if (left) {
      cache_.reorder(rows);
      return;
    }
    // Hypotheses of one sentence share its memory, so only what was decoded moves: half of the cache or less.
    for (auto& layer : cache_.layers) {
      for (auto* kept : {&layer.self_keys, &layer.self_values}) {
        if (kept->defined()) *kept = kept->index_select(0, rows);
      }
    }
  }

  Transformer model_;
  torch::Device device_;
  DecoderCache cache_;
  std::vector<int64_t> sentences_;                                    // of every row
  std::vector<std::shared_ptr<const OutputConstraint>> constraints_;  // of every row, in the beginning every sentence
};

/// Evaluation mode for as long as it lives, whatever mode the model was in.
class Evaluating {
 public:
  explicit Evaluating(Transformer model) : model_(std::move(model)), training_(model_->is_training()) {
    if (training_) model_->eval();
  }
  ~Evaluating() {
    if (training_) model_->train();
  }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  Transformer model_;
  bool training_;
};

/// Whether packed inference decodes, rather than the modules.
bool packs(const ModelSettings& settings, const torch::Device& device) {
  return device.is_cpu() && InferenceModel::supports(settings);
}

/// What modules on `device` compute in.
torch::ScalarType module_type(Precision precision, const torch::Device& device) {
  if (precision == Precision::fp16 && !device.is_cpu()) return torch::kHalf;
  if (precision == Precision::bf16) return torch::kBFloat16;
  if (precision == Precision::float32) return torch::kFloat;
  if (device.is_cpu()) throw Error("precision", "the modules decode in float32 or bf16 on a CPU", "use bf16");
  throw Error("precision", "int8 is for decoding on a CPU", "use float32, bf16 or fp16");
}

}  // namespace

StepFunction transformer_step(Transformer model, const Tensor& source,
                              std::vector<std::shared_ptr<const OutputConstraint>> constraints) {
  auto decoding = std::make_shared<CachedDecoding>(std::move(model), source, std::move(constraints));
  return [decoding](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) {
    return decoding->step(tokens, parents, width);
  };
}

struct Translator::Implementation {
  std::unique_ptr<InferenceModel> packed;  // what translates, where there is one; else
  Transformer model{nullptr};
  ModelSettings model_settings;  // resolved
  int64_t threads = 1;
  Vocabularies vocabularies;
  DecodingSettings settings;

  /// Pieces of the longest source, and tokens of the longest output, that the model has positions for.
  int64_t longest() const { return longest_text(model_settings); }

  int64_t max_length(size_t source_pieces) const {
    const int64_t wanted = static_cast<int64_t>(source_pieces) + settings.max_extra_length;
    if (model_settings.positions == ModelSettings::Positions::sinusoidal) return wanted;
    return std::min(wanted, model_settings.max_positions - 1);
  }

  /// How many of `sources`, in the order of `places` from `first` on, are decoded at once: as many as asked for, while
  /// their cached keys and values stay within a budget.
  size_t batch_size(const std::vector<std::vector<int64_t>>& sources, const std::vector<size_t>& places, size_t first,
                    const Tensor& parameter) const {
    const auto& s = model_settings;
    const double budget = parameter.is_cpu() ? 1e9 : 8e9;
    const double token = static_cast<double>(s.decoder_layers * s.heads * (s.d_k + s.d_v)) * parameter.element_size();
    size_t size = 0;
    while (first + size < places.size() && size < static_cast<size_t>(settings.batch_sentences)) {
      const auto pieces = static_cast<double>(sources[places[first + size]].size());  // the longest so far
      const double tokens = pieces + 1 + pieces + static_cast<double>(settings.max_extra_length);
      if (size > 0 && static_cast<double>((size + 1) * settings.beam) * tokens * token > budget) break;
      ++size;
    }
    return size;
  }
};

Translator::Translator(const std::filesystem::path& directory, torch::Device device, const InferenceOptions& inference)
    : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  self.threads = inference.threads;
  self.model_settings = read_model_settings(directory);
  Settings settings;
  settings.section("decoding", self.settings, "");
  settings.load(directory / "config.yaml", UnknownSections::ignored);
  self.settings = self.settings.validated();
  if (packs(self.model_settings, device)) {
    self.packed = InferenceModel::load(directory, self.model_settings, inference.precision);
  } else {
    const auto type = module_type(inference.precision, device);
    self.model = load_transformer(directory, device);
    self.model->to(type);
  }
  self.vocabularies = Vocabularies::load(directory, self.model_settings.source_vocabulary_size,
                                         self.model_settings.target_vocabulary_size);
}

Translator::Translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings)
    : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  self.model = std::move(model);
  self.model_settings = self.model->settings();
  self.vocabularies = std::move(vocabularies);
  self.settings = settings.validated();
}

Translator::Translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings,
                       const InferenceOptions& inference)
    : Translator(std::move(model), std::move(vocabularies), settings) {
  auto& self = *implementation_;
  self.threads = inference.threads;
  const auto device = self.model->projection_weight().device();
  if (packs(self.model_settings, device)) {
    self.packed = std::make_unique<InferenceModel>(self.model_settings, weights_of(*self.model), inference.precision,
                                                   "the model in memory");
    self.model = nullptr;
  } else if (module_type(inference.precision, device) != self.model->projection_weight().scalar_type()) {
    throw Error("precision", "the model in memory is decoded in the type of its weights", "convert it before");
  }
}

Translator::~Translator() = default;
Translator::Translator(Translator&&) noexcept = default;
Translator& Translator::operator=(Translator&&) noexcept = default;

const DecodingSettings& Translator::settings() const {
  return implementation_->settings;
}

const Vocabularies& Translator::vocabularies() const {
  return implementation_->vocabularies;
}

void Translator::set(const DecodingSettings& settings) {
  implementation_->settings = settings.validated();
}

std::vector<std::vector<Translation>> Translator::translate(const std::vector<std::string>& lines, int64_t first_line,
                                                            const ConstraintOf& constraint_of) const {
  const auto sources = encode(lines);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (static_cast<int64_t>(sources[i].size()) <= longest_source()) continue;
    throw Error(fmt::format("line {}", first_line + static_cast<int64_t>(i)), too_long(sources[i].size()),
                "split the line into sentences");
  }
  return translate_encoded(sources, constraint_of);
}

std::vector<std::vector<int64_t>> Translator::encode(const std::vector<std::string>& lines) const {
  std::vector<std::vector<int64_t>> sources;
  for (const auto& line : lines) {
    const auto text = trim(line);
    sources.push_back(text.empty() ? std::vector<int64_t>{} : implementation_->vocabularies.source->encode(text));
  }
  return sources;
}

int64_t Translator::longest_source() const {
  return implementation_->longest();
}

std::string Translator::too_long(size_t pieces) const {
  return fmt::format("has {} word pieces, and this model takes at most {}", pieces, longest_source());
}

std::vector<std::vector<Translation>> Translator::translate_encoded(const std::vector<std::vector<int64_t>>& sources,
                                                                    const ConstraintOf& constraint_of) const {
  std::vector<std::vector<Translation>> translations;
  for (const auto& hypotheses : translate_ids(sources, constraint_of)) {
    auto& alternatives = translations.emplace_back();
    for (const auto& hypothesis : hypotheses) {
      auto text = implementation_->vocabularies.target->decode(hypothesis.tokens);
      // Byte pieces can spell a line end, which would make two lines of one.
      std::replace_if(
          text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
      alternatives.push_back({std::move(text), hypothesis.score, hypothesis.log_probability, hypothesis.tokens});
    }
  }
  return translations;
}

std::vector<std::vector<Hypothesis>> Translator::translate_ids(const std::vector<std::vector<int64_t>>& sources,
                                                               const ConstraintOf& constraint_of) const {
  const auto& self = *implementation_;
  std::vector<std::vector<Hypothesis>> results(sources.size());
  std::vector<size_t> places;  // of sentences with text, in order of length: little padding is computed
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) {
      results[i].emplace_back();
    } else {
      places.push_back(i);
    }
  }
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return sources[a].size() < sources[b].size(); });
  if (places.empty()) return results;

  if (self.packed) {
    std::vector<std::vector<int64_t>> with_end;
    std::vector<int64_t> max_lengths;
    std::vector<std::shared_ptr<const OutputConstraint>> constraints;
    for (const size_t place : places) {
      with_end.push_back(sources[place]);
      with_end.back().push_back(Vocabulary::end);
      max_lengths.push_back(self.max_length(sources[place].size()));
      if (constraint_of) constraints.push_back(constraint_of(place));
    }
    auto found = continuous_search(*self.packed, with_end, max_lengths, self.settings,
                                   {.threads = self.threads, .constraints = constraints});
    for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(found[i]);
    return results;
  }

  const Evaluating evaluating(self.model);
  const auto parameter = self.model->projection_weight();
  for (size_t first = 0, size = 0; first < places.size(); first += size) {
    size = self.batch_size(sources, places, first, parameter);
    const auto longest = static_cast<int64_t>(sources[places[first + size - 1]].size()) + 1;
    auto source = torch::full({static_cast<int64_t>(size), longest}, Vocabulary::padding, torch::kInt64);  // [B, S]
    std::vector<int64_t> max_lengths;
    std::vector<std::shared_ptr<const OutputConstraint>> constraints;
    for (size_t row = 0; row < size; ++row) {
      if (constraint_of) constraints.push_back(constraint_of(places[first + row]));
      const auto& ids = sources[places[first + row]];
      auto* start = source.mutable_data_ptr<int64_t>() + static_cast<int64_t>(row) * longest;
      *std::copy(ids.begin(), ids.end(), start) = Vocabulary::end;
      max_lengths.push_back(self.max_length(ids.size()));
    }
    auto found = beam_search(transformer_step(self.model, source.to(parameter.device()), std::move(constraints)),
                             max_lengths, Vocabulary::begin, Vocabulary::end, self.settings);
    for (size_t row = 0; row < size; ++row) results[places[first + row]] = std::move(found[row]);
  }
  return results;
}

}  // namespace transformer
