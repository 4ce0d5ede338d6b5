#include "transformer/serving/served_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "transformer/architecture/model_directory.h"
#include "transformer/base/error.h"
#include "transformer/base/threads.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/request_error.h"

namespace transformer {

ServedModel::ServedModel(std::string name, LanguagePair languages, const std::filesystem::path& directory,
                         const ServingSettings& settings,
                         std::function<void(const std::string& name, size_t running)> started)
    : name_(std::move(name)), languages_(std::move(languages)) {
  InferenceOptions inference;
  inference.precision = settings.precision;
  inference.threads = settings.threads > 0 ? settings.threads : default_threads();
  translator_ = std::make_unique<Translator>(directory, "cpu", inference);
  if (settings.batch_sentences > 0) {
    auto search = translator_->settings();
    search.batch_sentences = settings.batch_sentences;
    translator_->set(search);
  }
  const Dispatcher::Limits limits{.waiting = static_cast<size_t>(settings.max_waiting),
                                  .waiting_of_client = static_cast<size_t>(settings.max_waiting_of_client)};
  dispatcher_ = std::make_unique<Dispatcher>(
      translator_->engine(), limits,
      [started = std::move(started), own_name = name_](size_t running) { started(own_name, running); });
}

const WordAligner& ServedModel::aligner() const {
  std::call_once(aligner_made_, [&] {
    aligner_ = std::make_unique<WordAligner>(translator_->packed(), translator_->vocabularies(), AlignmentSettings(),
                                             translator_->settings());
  });
  return *aligner_;
}

std::string ServedModels::pairs() const {
  std::set<std::string> pairs;
  for (const auto& model : models_) {
    pairs.insert(fmt::format("{} to {}", model->languages().source, model->languages().target));
  }
  return fmt::format("{}", fmt::join(pairs, ", "));
}

std::shared_ptr<const ServedModel> ServedModels::find(const std::string& source, const std::string& target,
                                                      const std::string& model) const {
  if (!model.empty()) {
    std::vector<std::string> names;
    for (const auto& one : models_) {
      if (one->name() == model) return one;
      names.push_back(one->name());
    }
    throw RequestError(400,
                       fmt::format("there is no model {}; there are: {}", in_quotes(model), fmt::join(names, ", ")));
  }
  const bool any_source = source.empty() || source == "auto";
  std::shared_ptr<const ServedModel> found;
  for (const auto& one : models_) {
    if (one->languages().target != target || (!any_source && one->languages().source != source)) continue;
    if (!found) {
      found = one;
    } else if (found->languages() != one->languages()) {
      throw RequestError(400, fmt::format("languages are not detected here: name the source; there are: {}", pairs()));
    }
  }
  if (!found) {
    throw RequestError(400, fmt::format("{} to {} is not translated here; there are: {}",
                                        any_source ? "any language" : in_quotes(source), in_quotes(target), pairs()));
  }
  return found;
}

std::vector<ModelPlace> model_places(const ServingSettings& settings) {
  std::vector<ModelPlace> places;
  for (size_t i = 0; i < settings.models.size(); ++i) {
    const std::filesystem::path directory = settings.models[i];
    check_model_directory(directory);
    ModelPlace place{std::filesystem::weakly_canonical(directory).filename().string(), directory, {}};
    const bool is_known =
        std::any_of(places.begin(), places.end(), [&](const auto& other) { return other.name == place.name; });
    if (is_known) place.name = directory.string();
    const auto given = i < settings.languages.size() ? settings.languages[i] : "?";
    if (given != "?") {
      place.languages = parse_language_pair(given, "serving.languages");
    } else if (const auto own = languages_of_model(directory / "config.yaml")) {
      place.languages = *own;
    } else {
      throw Error(directory.string(), "which languages the model translates is not known",
                  "say so: --languages en:de, once for each --model");
    }
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace transformer
