#include "transformer/inference/translator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transformer/architecture/longest_text.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/device_name.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

struct Translator::Implementation {
  std::shared_ptr<const InferenceModel> packed;
  std::shared_ptr<Engine> engine;  // of packed decoding
  std::shared_ptr<const DecodingBackend> backend;
  int64_t threads = 1;  // of packed decoding
  Vocabularies vocabularies;
  DecodingSettings settings;

  /// Decodes with packed weights from now on.
  void start(std::shared_ptr<const InferenceModel> model) {
    packed = std::move(model);
    engine = std::make_shared<Engine>(packed,
                                      Engine::Options{.threads = threads, .batch_sentences = settings.batch_sentences});
    backend = std::make_shared<PackedBackend>(packed, engine);
  }

  /// Pieces of the longest source, and tokens of the longest output, that the model has positions for.
  int64_t longest() const { return longest_text(backend->settings()); }

  int64_t max_length(size_t source_pieces, const DecodingSettings& search) const {
    const int64_t wanted = static_cast<int64_t>(source_pieces) + search.max_extra_length;
    const auto& model = backend->settings();
    return model.positions == ModelSettings::Positions::sinusoidal ? wanted : std::min(wanted, model.max_positions - 1);
  }
};

Translator::Translator(const std::filesystem::path& directory, const std::string& device,
                       const InferenceOptions& inference)
    : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  const auto model_settings = read_model_settings(directory);
  Settings settings;
  settings.section("decoding", self.settings, "");
  settings.load(directory / "config.yaml", UnknownSections::ignored);
  self.settings = self.settings.validated();
  if (gpu_of(device)) {
    self.backend = open_module_backend(directory, device, inference);
  } else {
    self.threads = inference.threads;
    self.start(InferenceModel::load(directory, model_settings, inference.precision));
  }
  self.vocabularies =
      Vocabularies::load(directory, model_settings.source_vocabulary_size, model_settings.target_vocabulary_size);
}

Translator::Translator(std::shared_ptr<const DecodingBackend> backend, Vocabularies vocabularies,
                       const DecodingSettings& settings)
    : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  self.backend = std::move(backend);
  self.vocabularies = std::move(vocabularies);
  self.settings = settings.validated();
}

Translator::Translator(std::shared_ptr<const InferenceModel> model, Vocabularies vocabularies,
                       const DecodingSettings& settings, int64_t threads)
    : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  self.vocabularies = std::move(vocabularies);
  self.settings = settings.validated();
  self.threads = threads;
  self.start(std::move(model));
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

const ModelSettings& Translator::model_settings() const {
  return implementation_->backend->settings();
}

std::shared_ptr<const InferenceModel> Translator::packed() const {
  return implementation_->packed;
}

void Translator::set(const DecodingSettings& settings) {
  auto& self = *implementation_;
  const bool same_batches = settings.batch_sentences == self.settings.batch_sentences;
  self.settings = settings.validated();
  if (self.packed && !same_batches) self.start(self.packed);
}

Translator Translator::with(const DecodingSettings& settings) const {
  const auto& self = *implementation_;
  Translator other(self.backend, self.vocabularies, settings);
  other.implementation_->packed = self.packed;
  other.implementation_->engine = self.engine;
  other.implementation_->threads = self.threads;
  return other;
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
  for (auto& hypotheses : translate_ids(sources, constraint_of)) {
    auto& alternatives = translations.emplace_back();
    for (auto& hypothesis : hypotheses) alternatives.push_back(translation(std::move(hypothesis)));
  }
  return translations;
}

std::shared_ptr<Engine> Translator::engine() const {
  return implementation_->engine;
}

DecodingRequest Translator::request(std::vector<int64_t> source, const DecodingSettings& settings) const {
  const int64_t max_length = implementation_->max_length(source.size(), settings);
  source.push_back(Vocabulary::end);
  return {.source = std::move(source), .max_length = max_length, .settings = settings};
}

Translation Translator::translation(Hypothesis hypothesis) const {
  auto text = implementation_->vocabularies.target->decode(hypothesis.tokens);
  // Byte pieces can spell a line end, which would make two lines of one.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return {std::move(text),
          hypothesis.score,
          hypothesis.log_probability,
          std::move(hypothesis.tokens),
          std::move(hypothesis.token_log_probabilities),
          hypothesis.finished};
}

std::vector<std::vector<Hypothesis>> Translator::translate_ids(const std::vector<std::vector<int64_t>>& sources,
                                                               const ConstraintOf& constraint_of) const {
  const auto& self = *implementation_;
  std::vector<std::vector<Hypothesis>> results(sources.size());
  std::vector<size_t> places;  // of sentences with text
  std::vector<std::vector<int64_t>> with_end;
  std::vector<int64_t> max_lengths;
  std::vector<std::shared_ptr<const OutputConstraint>> constraints;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) {
      results[i].emplace_back();
      continue;
    }
    places.push_back(i);
    with_end.push_back(sources[i]);
    with_end.back().push_back(Vocabulary::end);
    max_lengths.push_back(self.max_length(sources[i].size(), self.settings));
    if (constraint_of) constraints.push_back(constraint_of(i));
  }
  if (places.empty()) return results;
  auto found = self.backend->decode(with_end, max_lengths, self.settings, constraints);
  for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(found[i]);
  return results;
}

}  // namespace transformer
