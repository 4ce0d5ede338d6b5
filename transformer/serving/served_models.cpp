#include "transformer/serving/served_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "transformer/architecture/model_directory.h"
#include "transformer/base/error.h"
#include "transformer/base/model_files.h"
#include "transformer/base/threads.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/json_text.h"
#include "transformer/serving/request_error.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

namespace {

/// Those that a model of many languages is told.
Vocabulary::Languages languages_to_tell(const std::filesystem::path& directory) {
  const auto joint = directory / vocabulary_name;
  std::error_code ignored;
  return std::filesystem::exists(joint, ignored) ? Vocabulary(joint).languages() : Vocabulary::Languages();
}

/// What a model of many languages calls the one that is meant by `code`. Throws Error where it knows none or several.
std::string told_as(const std::string& code, const Vocabulary::Languages& known) {
  std::vector<std::string> codes;
  for (const auto& [own, piece] : known.pieces) codes.push_back(own);
  const auto meant = mean_language(code, codes);
  if (meant.size() > 1) {
    throw Error("serving.languages", fmt::format("{} is each of {}", in_quotes(code), fmt::join(meant, ", ")),
                "name one of them");
  }
  if (meant.empty()) known.piece(code, "serving.languages");  // says so
  return meant.front();
}

/// What a folder is called by who names it. Where that is a link, not what it leads to, which may be another at the
/// next reload; only of "." and "..", which are no names, what they are.
std::string name_of(const std::filesystem::path& directory) {
  const auto written = (directory / "").lexically_normal().parent_path().filename();
  const bool is_name = !written.empty() && written != "." && written != "..";
  return repaired_utf8((is_name ? written : std::filesystem::weakly_canonical(directory).filename()).string());
}

std::string languages_json_of(const ServedModels::Models& models) {
  std::map<std::string, std::set<std::string>> targets;
  for (const auto& model : models) {
    const auto& languages = model->languages();
    if (!languages.many()) {
      const auto target = languages.tag(languages.usual().target);
      targets[languages.tag(languages.usual().source)].insert(target);
      targets[target];
    }
    const auto& tags = languages.tags();
    for (const auto& source : tags) {
      for (const auto& target : tags) {
        if (target != source) targets[source].insert(target);
      }
    }
  }
  auto list = nlohmann::ordered_json::array();
  for (const auto& [code, to] : targets) {
    list.push_back({{"code", code}, {"name", language_name(code)}, {"targets", to}});
  }
  return json_text(list);
}

}  // namespace

ServedModel::ServedModel(const ModelPlace& place, const ServingSettings& settings,
                         std::function<void(const std::string& name, size_t running)> started)
    : name_(place.name) {
  InferenceOptions inference;
  inference.precision = settings.asked_precision();
  inference.threads = settings.threads > 0 ? settings.threads : default_threads();
  // Operators copy new versions over old ones: once it has loaded one, a server must neither end at that nor answer
  // from halves of both.
  inference.packed_in = PackedIn::memory;
  translator_ = std::make_unique<Translator>(place.directory, "cpu", inference);
  if (settings.batch_sentences > 0) {
    auto search = translator_->settings();
    search.batch_sentences = settings.batch_sentences;
    translator_->set(search);
  }
  const auto& own = translator_->settings();
  limits_ = {.beam = std::max(own.beam, settings.max_beam),
             .translations = std::max(own.n_best, settings.max_beam),
             .extra_length = std::max(own.max_extra_length, settings.max_extra_length)};
  // Who asks for several hypotheses is answered, too.
  if (!place.draft.empty()) {
    translator_->set_draft(place.draft, Translator::OtherSearches::decoded_without_it);
    draft_ = name_of(place.draft);
  }
  const auto& known = translator_->vocabularies().target->languages();
  if (!place.languages) {
    std::vector<std::string> codes;
    for (const auto& [code, piece] : known.pieces) codes.push_back(code);
    if (codes.empty()) throw Error(place.directory.string(), "which languages the model translates is not known");
    languages_.emplace(std::move(codes), LanguagePair{own.source_language, own.target_language});
  } else {
    languages_.emplace(*place.languages);
  }
  const Dispatcher::Limits limits{.waiting = static_cast<size_t>(settings.max_waiting),
                                  .waiting_of_client = static_cast<size_t>(settings.max_waiting_of_client),
                                  .batch_wait = settings.batch_wait_ms / 1000};
  dispatcher_ = std::make_unique<Dispatcher>(
      translator_->engine(), limits,
      [started = std::move(started), own_name = name_](size_t running) { started(own_name, running); });
}

DecodingSettings ServedModel::search(const LanguagePair& languages) const {
  auto search = translator_->settings();
  if (translator_->vocabularies().target->languages().empty()) return search;
  search.source_language = languages.source;
  search.target_language = languages.target;
  return search;
}

WordAligner ServedModel::aligner(const DecodingSettings& search) const {
  return {translator_->packed(), translator_->vocabularies(), AlignmentSettings(), search};
}

ServedModels::ServedModels(Models models) : models_(std::move(models)), languages_json_(languages_json_of(models_)) {}

std::string ServedModels::pairs() const {
  std::set<std::string> pairs;
  for (const auto& model : models_) pairs.insert(model->languages().text());
  return fmt::format("{}", fmt::join(pairs, ", "));
}

ServedRoute ServedModels::find(const std::string& source, const std::string& target, const std::string& model) const {
  const bool any_source = source.empty() || source == "auto";
  const auto refuse = [&](const std::string& there_are) {
    for (const auto& one : models_) {
      if (!model.empty() && one->name() != model) continue;
      if (const auto why = one->languages().ambiguity(source, target); !why.empty()) throw RequestError(400, why);
    }
    throw RequestError(400, fmt::format("{} to {} is not translated here; there are: {}",
                                        any_source ? "any language" : in_quotes(source),
                                        target.empty() ? "any language" : in_quotes(target), there_are));
  };
  const auto ask_for_source = [](const std::string& there_are) {
    throw RequestError(400, fmt::format("languages are not detected here: name the source; there are: {}", there_are));
  };
  if (!model.empty()) {
    std::vector<std::string> names;
    for (const auto& one : models_) {
      names.push_back(one->name());
      if (one->name() != model) continue;
      const auto& languages = one->languages();
      if (target.empty() && languages.usual().target.empty()) {
        throw RequestError(400, "target is missing: the code of a language; there are: " + languages.text());
      }
      const auto pair = languages.find(any_source ? "" : source, target);
      if (!pair && any_source && languages.lacks_source(target)) ask_for_source(languages.text());
      if (!pair) refuse(languages.text());
      return {one, *pair};
    }
    throw RequestError(400,
                       fmt::format("there is no model {}; there are: {}", in_quotes(model), fmt::join(names, ", ")));
  }
  ServedRoute found;
  std::string found_source;  // as it is listed: models have names of their own for one language
  bool is_open = false;      // it would be translated, from any of several languages
  bool is_known = false;     // it would be, from a language that is named
  for (const auto& one : models_) {
    const auto& languages = one->languages();
    const auto pair = languages.find(any_source ? "" : source, target);
    const auto pair_source = pair ? languages.tag(pair->source) : "";
    const bool lacks_source = any_source && !pair && languages.lacks_source(target);
    is_known |= lacks_source;
    // A model that has a usual source would not be asked, where another translates.
    is_open |= pair ? any_source && found.model && found_source != pair_source
                    : lacks_source && languages.usual().source.empty();
    if (!pair || found.model) continue;
    found = {one, *pair};
    found_source = pair_source;
  }
  if (is_open || (is_known && !found.model)) ask_for_source(pairs());
  if (!found.model) refuse(pairs());
  return found;
}

void ServedModels::drain() const {
  for (const auto& model : models_) model->dispatcher().drain();
}

std::vector<ModelPlace> model_places(const ServingSettings& settings) {
  std::vector<ModelPlace> places;
  for (size_t i = 0; i < settings.models.size(); ++i) {
    const std::filesystem::path directory = settings.models[i];
    check_model_directory(directory);
    ModelPlace place{name_of(directory), directory, std::nullopt, {}};
    const auto is_known = [&] {
      return std::any_of(places.begin(), places.end(), [&](const auto& other) { return other.name == place.name; });
    };
    const auto whole = repaired_utf8(directory.string());
    if (is_known()) place.name = whole;
    for (int number = 2; is_known(); ++number) place.name = fmt::format("{}-{}", whole, number);
    const auto given = i < settings.languages.size() ? settings.languages[i] : "?";
    const auto known = languages_to_tell(directory);
    if (given != "?") {
      place.languages = parse_language_pair(given, "serving.languages");
      if (!known.empty()) {
        for (auto* code : {&place.languages->source, &place.languages->target}) *code = told_as(*code, known);
        if (place.languages->source == place.languages->target) {
          throw Error("serving.languages", in_quotes(given) + " is one language twice");
        }
      }
    } else if (known.empty()) {
      place.languages = languages_of_model(directory / config_name);
      if (!place.languages) {
        throw Error(directory.string(), "which languages the model translates is not known",
                    "say so: --languages en:de, once for each --model");
      }
    }
    if (i < settings.drafts.size() && settings.drafts[i] != "none") {
      place.draft = settings.drafts[i];
      check_model_directory(place.draft);
    }
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace transformer
