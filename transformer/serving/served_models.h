#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transformer/inference/translator.h"
#include "transformer/inference/word_alignment.h"
#include "transformer/serving/dispatcher.h"
#include "transformer/serving/languages.h"
#include "transformer/serving/settings.h"

namespace transformer {

/// Where a model lies, and what it is served as.
struct ModelPlace {
  std::string name;                       // by which requests ask for it: the directory's as written; no other has it
  std::filesystem::path directory;        // a model directory
  std::optional<LanguagePair> languages;  // the only ones it is to translate; none: those that it knows
  std::filesystem::path draft;            // that of the model that guesses for it (Translator::set_draft); empty: none
};
/// The name, the languages and the draft of each of `settings.models`; no languages of a model that knows many, and is
/// to translate them all. Throws Error where languages are given neither by the model nor by the settings, and for what
/// is no model directory.
std::vector<ModelPlace> model_places(const ServingSettings& settings);

/// A model that requests are sent to: loaded once, with workers of its own that live as long as it.
class ServedModel {
 public:
  /// Throws what Translator throws of the directories, and Error where no languages are given and it knows none.
  ServedModel(const ModelPlace& place, const ServingSettings& settings,
              std::function<void(const std::string& name, size_t running)> started);

  /// By which requests ask for it.
  const std::string& name() const { return name_; }
  /// What it translates.
  const ServedLanguages& languages() const { return *languages_; }
  /// How it translates these languages, where nothing else is asked for.
  DecodingSettings search(const LanguagePair& languages) const;
  /// What the directory of the model that guesses for it is called, for those who ask; empty: none does.
  const std::string& draft() const { return draft_; }
  /// What a request may ask for, at most: what the server allows, or what is the model's own where that is more.
  struct Limits {
    int64_t beam = 1, translations = 1, extra_length = 0;  // as decoding.beam, n_best and max_extra_length
  };
  /// Of this model's requests.
  const Limits& limits() const { return limits_; }
  /// With the decoding settings of its directory.
  const Translator& translator() const { return *translator_; }
  /// Where requests hand over their sentences.
  Dispatcher& dispatcher() const { return *dispatcher_; }
  /// Of what such a search translates.
  WordAligner aligner(const DecodingSettings& search) const;

 private:
  std::string name_, draft_;
  Limits limits_;
  std::optional<ServedLanguages> languages_;
  std::unique_ptr<Dispatcher> dispatcher_;  // it outlives the workers, which the translator may hold longest
  std::unique_ptr<Translator> translator_;
};

/// Who translates what a request asks for.
struct ServedRoute {
  std::shared_ptr<const ServedModel> model;  // never null
  LanguagePair languages;                    // the request's, or the model's usual ones
};

/// All that are served at a time.
class ServedModels {
 public:
  /// None is null.
  using Models = std::vector<std::shared_ptr<const ServedModel>>;
  /// In the order in which they are asked whether they translate something.
  explicit ServedModels(Models models);

  /// In the order that they were given in.
  const Models& all() const { return models_; }
  /// What /languages answers: every language as it is listed (ServedLanguages::tag), and those that it is translated
  /// to. It is long where a model knows many, and made but once.
  const std::string& languages_json() const { return languages_json_; }
  /// The first that translates so (ServedLanguages::find), or the one of this name, if it does; "" and "auto" for a
  /// source stand for any where the target leaves no choice. Throws RequestError (400) naming what there is.
  ServedRoute find(const std::string& source, const std::string& target, const std::string& model) const;
  /// Dispatcher::drain of each.
  void drain() const;

 private:
  std::string pairs() const;
  Models models_;
  std::string languages_json_;
};

}  // namespace transformer
