#include "transformer/inference/translator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "transformer/architecture/longest_text.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/device_name.h"
#include "transformer/base/error.h"
#include "transformer/base/model_files.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/output_prefix.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/told_languages.h"
#include "transformer/inference/weight_source.h"
#include "transformer/text/corpus.h"
#include "transformer/text/piece_texts.h"

namespace transformer {

struct Translator::Implementation {
  Ensemble ensemble;                            // of packed decoding: without a model elsewhere
  std::shared_ptr<const InferenceModel> draft;  // of it; null: none
  OtherSearches others = OtherSearches::refused;
  std::shared_ptr<Engine> engine;  // of it
  std::shared_ptr<const DecodingBackend> backend;
  int64_t threads = 1;  // of packed decoding
  PackedIn packed_in = PackedIn::file;
  Vocabularies vocabularies;
  DecodingSettings settings;
  std::vector<std::string> tags;  // that texts may begin with

  /// Decodes with packed weights from now on.
  void start(const Ensemble& models) {
    ensemble = models.validated();
    engine = std::make_shared<Engine>(
        ensemble, Engine::Options{.threads = threads, .batch_sentences = settings.batch_sentences, .draft = draft});
    backend = std::make_shared<PackedBackend>(ensemble.models.front(), engine);
  }

  /// Throws Error for settings that cannot be searched by here.
  void check(const DecodingSettings& search) const {
    if (!engine) check_for_modules(search);
    check_draft(search);
  }

  /// Throws Error where a draft has no place in a search.
  void check_draft(const DecodingSettings& search) const {
    if (!draft || others == OtherSearches::decoded_without_it) return;
    if (search.coverage_penalty != 0) {
      throw Error("decoding.coverage_penalty", "ranks several hypotheses, and a draft guesses what one goes on with",
                  "set coverage_penalty to 0, or leave the draft out");
    }
    if (search.hypotheses() == 1) return;
    const bool sampling = search.search == DecodingSettings::Search::sampling;
    throw Error(sampling ? "decoding.n_best" : "decoding.beam",
                fmt::format("a draft guesses what one hypothesis goes on with, and this makes {}", search.hypotheses()),
                sampling ? "draw one sample, or leave the draft out" : "set beam to 1, or leave the draft out");
  }

  /// The decoding settings that a model directory was saved with, and its tags.
  void read_settings(const std::filesystem::path& directory) {
    Settings all;
    all.section("decoding", settings, "");
    const auto file = directory / config_name;
    all.load(file, UnknownSections::ignored);
    settings = checked_of(file.string(), [&] { return settings.validated(); });
    tags = tags_of_model(file);
  }

  /// Pieces of the longest source that is read.
  int64_t longest() const { return least(longest_text) - languages_told(); }

  /// Of both vocabularies, where they have any.
  const Vocabulary::Languages& languages() const { return vocabularies.target->languages(); }

  /// Pieces beside a text, on either side, and positions that they take.
  int64_t languages_told() const { return languages().empty() ? 0 : 1; }

  /// Tokens that an output has positions for.
  int64_t longest_output() const { return least(most_tokens) - languages_told(); }

  /// Of the models that decode together, the least that `of` says of one's settings.
  template <class Of>
  int64_t least(const Of& of) const {
    int64_t found = of(backend->settings());
    for (const auto& model : ensemble.models) found = std::min(found, of(model->settings()));
    return found;
  }

  DecodingRequest request(std::vector<int64_t> source, const DecodingSettings& search, EncodedWishes wishes) const {
    // What an output has to begin with leaves as much to be added as the source does.
    const int64_t length = std::max(std::ssize(source), wishes.prefix_tokens) + search.max_extra_length;
    DecodingRequest request{.source = std::move(source),
                            .max_length = std::min(length, longest_output()),
                            .settings = search,
                            .constraint = std::move(wishes.constraint),
                            .control = std::move(wishes.control),
                            .shortlist = shortlist};
    const ToldLanguages told(vocabularies, search);
    request.source = told.source(std::move(request.source));
    if (told.any()) {
      request.constraint = begins_with_told(told.first_output(), std::move(request.constraint));
      request.told = languages_told();
    }
    return request;
  }

  /// The texts of the target vocabulary's pieces, which few ask for.
  std::shared_ptr<const PieceTexts> pieces() const {
    const std::lock_guard lock(lazy->mutex);
    if (!lazy->pieces) lazy->pieces = std::make_shared<PieceTexts>(*vocabularies.target);
    return lazy->pieces;
  }

  std::vector<std::vector<Hypothesis>> decode(const std::vector<std::vector<int64_t>>& sources,
                                              const std::function<EncodedWishes(size_t line)>& wishes_of) const {
    std::vector<std::vector<Hypothesis>> results(sources.size());
    std::vector<size_t> places;  // of sentences with text
    std::vector<DecodingRequest> requests;
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].empty()) {
        results[i].emplace_back();
        continue;
      }
      places.push_back(i);
      requests.push_back(request(sources[i], settings, wishes_of(i)));
    }
    if (places.empty()) return results;
    auto found = backend->decode(std::move(requests));
    for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(found[i]);
    return results;
  }

  std::shared_ptr<const Shortlist> shortlist;
  struct Lazy {
    std::mutex mutex;
    std::shared_ptr<const PieceTexts> pieces;
  };
  std::shared_ptr<Lazy> lazy = std::make_shared<Lazy>();
};

Translator::Translator(const std::filesystem::path& directory, const std::string& device,
                       const InferenceOptions& inference)
    : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  const auto model_settings = read_model_settings(directory);
  self.read_settings(directory);
  if (gpu_of(device)) {
    self.backend = open_module_backend(directory, device, inference);
  } else {
    self.threads = inference.threads;
    self.packed_in = inference.packed_in;
    self.start({.models = {InferenceModel::load(directory, model_settings, inference.precision, inference.packed_in)}});
  }
  self.vocabularies =
      Vocabularies::load(directory, model_settings.source_vocabulary_size, model_settings.target_vocabulary_size);
}

Translator::Translator(const std::vector<std::filesystem::path>& directories, std::vector<double> weights,
                       Ensemble::Average average, const InferenceOptions& inference)
    : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  Ensemble ensemble{.models = {}, .weights = std::move(weights), .average = average};
  for (const auto& directory : directories) {
    const auto settings = read_model_settings(directory);
    auto vocabularies = Vocabularies::load(directory, settings.source_vocabulary_size, settings.target_vocabulary_size);
    if (ensemble.models.empty()) {
      self.vocabularies = std::move(vocabularies);
      self.read_settings(directory);
    } else if (vocabularies.source->checksum() != self.vocabularies.source->checksum() ||
               vocabularies.target->checksum() != self.vocabularies.target->checksum()) {
      verify_model_directory(directory);
      throw Error(directory.string(), fmt::format("has another vocabulary than {}", directories.front().string()),
                  "take models that were trained with one vocabulary");
    }
    ensemble.models.push_back(InferenceModel::load(directory, settings, inference.precision, inference.packed_in));
  }
  self.threads = inference.threads;
  self.packed_in = inference.packed_in;
  self.start(ensemble);
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
  self.start({.models = {std::move(model)}});
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

int64_t Translator::languages_told() const {
  return implementation_->languages_told();
}

const ModelSettings& Translator::model_settings() const {
  return implementation_->backend->settings();
}

std::shared_ptr<const InferenceModel> Translator::packed() const {
  const auto& models = implementation_->ensemble.models;
  return models.empty() ? nullptr : models.front();
}

void Translator::set(const DecodingSettings& settings) {
  auto& self = *implementation_;
  const auto valid = settings.validated();
  self.check(valid);
  const auto before = std::exchange(self.settings, valid);
  if (!self.engine || valid.batch_sentences == before.batch_sentences) return;
  try {
    self.start(self.ensemble);
  } catch (...) {
    self.settings = before;
    throw;
  }
}

void Translator::set_shortlist(std::shared_ptr<const Shortlist> shortlist) {
  if (shortlist && !implementation_->engine) {
    throw Error("shortlist", "a model on a GPU is decoded without one", "use the device 'cpu'");
  }
  implementation_->shortlist = std::move(shortlist);
}

void Translator::set_draft(const std::filesystem::path& directory, OtherSearches others) {
  auto& self = *implementation_;
  if (!self.engine) throw Error("draft", "a model on a GPU is decoded without one", "use the device 'cpu'");
  const auto model_settings = read_model_settings(directory);
  const auto vocabularies =
      Vocabularies::load(directory, model_settings.source_vocabulary_size, model_settings.target_vocabulary_size);
  if (vocabularies.source->checksum() != self.vocabularies.source->checksum() ||
      vocabularies.target->checksum() != self.vocabularies.target->checksum()) {
    verify_model_directory(directory);
    throw Error(directory.string(), "has another vocabulary than the model that it is to be the draft of",
                "take one that was trained with the same");
  }
  // As the model's weights are, unless they are stored in another way: nothing but speed depends on it.
  const auto file = directory / weights_name;
  std::optional<Precision> precision = self.ensemble.models.front()->precision();
  if (PackedWeights::precision_of(file, TensorReader(file).metadata())) precision.reset();
  const auto before =
      std::exchange(self.draft, InferenceModel::load(directory, model_settings, precision, self.packed_in));
  const auto others_before = std::exchange(self.others, others);
  try {
    self.check_draft(self.settings);
    self.start(self.ensemble);
  } catch (...) {
    self.draft = before;
    self.others = others_before;
    throw;
  }
}

Translator Translator::with(const DecodingSettings& settings) const {
  Translator other(implementation_->backend, implementation_->vocabularies, settings);
  auto changed = *implementation_;
  changed.settings = other.settings();
  if (changed.engine) changed.settings.batch_sentences = implementation_->settings.batch_sentences;
  changed.check(changed.settings);
  *other.implementation_ = std::move(changed);
  return other;
}

std::vector<std::vector<Translation>> Translator::translate(const std::vector<std::string>& lines, int64_t first_line,
                                                            const ConstraintOf& constraint_of) const {
  const auto sources = encode(lines);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (const auto wrong = problem(sources[i].size()); !wrong.empty())
      throw Error(fmt::format("line {}", first_line + static_cast<int64_t>(i)), wrong, remedy);
  }
  return translate_encoded(sources, constraint_of);
}

std::vector<std::vector<int64_t>> Translator::encode(const std::vector<std::string>& lines) const {
  std::vector<std::vector<int64_t>> sources;
  for (const auto& line : lines) sources.push_back(implementation_->vocabularies.source->encode_line(line));
  return sources;
}

std::string as_read(std::string_view said, std::string_view text) {
  return said.empty() ? std::string(text) : fmt::format("{} {}", said, text);
}

std::string_view Translator::said_by(std::string_view text) const {
  const auto& self = *implementation_;
  if (const auto code = self.vocabularies.source->code_of(text); !code.empty()) return code;
  for (const std::string_view tag : self.tags) {
    size_t position = tag.size();
    if (text.starts_with(tag) && (text.size() == tag.size() || is_blank(next_code_point(text, position)))) {
      return text.substr(0, tag.size());
    }
  }
  return {};
}

int64_t Translator::longest_source() const {
  return implementation_->longest();
}

std::string Translator::problem(size_t pieces) const {
  if (std::cmp_less_equal(pieces, longest_source())) return {};
  return fmt::format("has {} word pieces, and this model takes at most {}", pieces, longest_source());
}

std::vector<std::vector<Translation>> Translator::translate_encoded(const std::vector<std::vector<int64_t>>& sources,
                                                                    const ConstraintOf& constraint_of) const {
  return translated(translate_ids(sources, constraint_of));
}

std::vector<std::vector<Translation>> Translator::translate_encoded(const std::vector<std::vector<int64_t>>& sources,
                                                                    std::span<const EncodedWishes> wishes) const {
  auto translations = translated(implementation_->decode(sources, [&](size_t line) { return wishes[line]; }));
  for (size_t line = 0; line < translations.size(); ++line) {
    for (auto& translation : translations[line]) {
      for (size_t& phrase : translation.missing) phrase = wishes[line].required_indices.at(phrase);
      // A line without text is not searched for.
      if (sources[line].empty()) translation.missing = wishes[line].required_indices;
    }
  }
  return translations;
}

std::vector<std::vector<Translation>> Translator::translated(std::vector<std::vector<Hypothesis>>&& found) const {
  std::vector<std::vector<Translation>> translations;
  for (auto& hypotheses : found) {
    auto& alternatives = translations.emplace_back();
    for (auto& hypothesis : hypotheses) alternatives.push_back(translation(std::move(hypothesis)));
  }
  return translations;
}

std::shared_ptr<Engine> Translator::engine() const {
  return implementation_->engine;
}

DecodingRequest Translator::request(std::vector<int64_t> source, const DecodingSettings& settings) const {
  return implementation_->request(std::move(source), settings, {});
}

std::vector<std::vector<double>> Translator::score(std::span<const std::vector<int64_t>> sources,
                                                   std::span<const std::vector<int64_t>> targets,
                                                   const DecodingSettings& settings, int64_t threads) const {
  if (!packed()) throw std::logic_error("Translator::score: packed weights do not decode here");
  if (implementation_->ensemble.models.size() > 1) {
    throw Error("score", "several models decode together", "score with one of them");
  }
  return token_log_probabilities(*packed(), sources, targets, threads,
                                 ToldLanguages(implementation_->vocabularies, settings));
}

void Translator::find_entropies(std::span<const std::vector<int64_t>> sources,
                                std::span<Translation* const> translations) const {
  const auto& self = *implementation_;
  if (self.ensemble.models.size() != 1) return;
  std::vector<std::vector<int64_t>> read, written;
  std::vector<Translation*> of;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty() || translations[i]->token_log_probabilities.empty()) continue;
    read.push_back(sources[i]);
    written.push_back(translations[i]->tokens);
    of.push_back(translations[i]);
  }
  auto found = token_entropies(*packed(), read, written, 1, ToldLanguages(self.vocabularies, self.settings));
  for (size_t i = 0; i < of.size(); ++i) {
    // The end that was not written is not told of.
    found[i].resize(of[i]->token_log_probabilities.size());
    of[i]->token_entropies = std::move(found[i]);
  }
}

Translation Translator::translation(Hypothesis hypothesis) const {
  // What was told is no part of what was written.
  if (auto& tokens = hypothesis.tokens; !implementation_->languages().empty() && !tokens.empty()) {
    tokens.erase(tokens.begin());
    auto& each = hypothesis.token_log_probabilities;
    if (!each.empty()) each.erase(each.begin());
  }
  auto text = implementation_->vocabularies.target->decode(hypothesis.tokens);
  // Byte pieces can spell a line end, which would make two lines of one.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return {std::move(text),
          hypothesis.score,
          hypothesis.log_probability,
          std::move(hypothesis.tokens),
          std::move(hypothesis.token_log_probabilities),
          hypothesis.finished,
          std::move(hypothesis.missing)};
}

std::vector<std::vector<Hypothesis>> Translator::translate_ids(const std::vector<std::vector<int64_t>>& sources,
                                                               const ConstraintOf& constraint_of) const {
  return implementation_->decode(
      sources, [&](size_t line) { return EncodedWishes{.constraint = constraint_of ? constraint_of(line) : nullptr}; });
}

EncodedWishes Translator::encode_wishes(const LineWishes& wishes) const {
  const auto& self = *implementation_;
  const auto& vocabulary = *self.vocabularies.target;
  EncodedWishes encoded;
  if (!trim(wishes.prefix).empty()) {
    auto prefix = begins_with(wishes.prefix, vocabulary, self.pieces());
    encoded.constraint = std::move(prefix.constraint);
    encoded.prefix_tokens = prefix.tokens;
    const int64_t most =
        std::min(self.longest_output(),
                 self.settings.max_length > 0 ? self.settings.max_length : std::numeric_limits<int64_t>::max());
    if (encoded.prefix_tokens > most) {
      throw Error(
          in_quotes(wishes.prefix),
          fmt::format("an output of at most {} word pieces may end before it: spelled letter by letter it takes {}",
                      most, encoded.prefix_tokens),
          "give a shorter beginning, or let the output be longer");
    }
    const auto found =
        wishes.forbidden ? wishes.forbidden->found_in(prefix.text, ForbiddenText::Extent::beginning) : "";
    if (!found.empty()) {
      throw Error(in_quotes(wishes.prefix),
                  fmt::format("begins the output, and holds {}, which is forbidden", in_quotes(found)),
                  "decide for one");
    }
  }
  for (size_t i = 0; i < wishes.required.size(); ++i) {
    const auto& phrase = wishes.required[i];
    if (!encoded.control.pieces) encoded.control.pieces = self.pieces();
    auto spellings = spellings_of(phrase, vocabulary, *encoded.control.pieces);
    if (spellings.empty()) continue;
    for (const auto& tokens : spellings) {
      if (std::find(tokens.begin(), tokens.end(), Vocabulary::unknown) == tokens.end()) continue;
      throw Error(in_quotes(phrase), "cannot be required: the vocabulary lacks a character of it");
    }
    for (size_t other = 1; other < spellings.size(); ++other) {
      encoded.control.other_spellings.push_back({encoded.control.required.size(), std::move(spellings[other])});
    }
    encoded.control.required.push_back(std::move(spellings.front()));
    encoded.required_indices.push_back(i);
  }
  encoded.control.forbidden = wishes.forbidden;
  encoded.control.bias = wishes.bias;
  DecodingRequest{.source = {}, .settings = self.settings, .control = encoded.control}.check(vocabulary.size());
  return encoded;
}

std::shared_ptr<const ForbiddenText> Translator::forbid(const std::vector<std::string>& phrases) const {
  const auto& self = *implementation_;
  return std::make_shared<ForbiddenText>(*self.vocabularies.target, self.pieces(), phrases);
}

}  // namespace transformer
