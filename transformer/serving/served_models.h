#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transformer/inference/translator.h"
#include "transformer/inference/word_alignment.h"
#include "transformer/serving/dispatcher.h"
#include "transformer/serving/languages.h"
#include "transformer/serving/settings.h"

namespace transformer {

/// A model that requests are sent to: loaded once, with workers of its own that live as long as it.
class ServedModel {
 public:
  /// Throws what Translator throws of the directory.
  ServedModel(std::string name, LanguagePair languages, const std::filesystem::path& directory,
              const ServingSettings& settings, std::function<void(const std::string& name, size_t running)> started);

  const std::string& name() const { return name_; }
  const LanguagePair& languages() const { return languages_; }
  const Translator& translator() const { return *translator_; }
  Dispatcher& dispatcher() const { return *dispatcher_; }
  /// Made when it is first asked for.
  const WordAligner& aligner() const;

 private:
  std::string name_;
  LanguagePair languages_;
  std::unique_ptr<Dispatcher> dispatcher_;  // it outlives the workers, which the translator may hold longest
  std::unique_ptr<Translator> translator_;
  mutable std::once_flag aligner_made_;
  mutable std::unique_ptr<WordAligner> aligner_;
};

/// All that are served at a time.
class ServedModels {
 public:
  using Models = std::vector<std::shared_ptr<const ServedModel>>;
  explicit ServedModels(Models models) : models_(std::move(models)) {}

  const Models& all() const { return models_; }
  /// The first that has this name, or else translates so; "" and "auto" for a source stand for any where the target
  /// leaves no choice. Throws RequestError (400) naming what there is.
  std::shared_ptr<const ServedModel> find(const std::string& source, const std::string& target,
                                          const std::string& model) const;

 private:
  std::string pairs() const;
  Models models_;
};

/// The name and the languages of each of `settings.models`. Throws Error where languages are given neither by the model
/// nor by the settings.
struct ModelPlace {
  std::string name;
  std::filesystem::path directory;
  LanguagePair languages;
};
std::vector<ModelPlace> model_places(const ServingSettings& settings);

}  // namespace transformer
