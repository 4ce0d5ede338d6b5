#include "apps/translation_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "transformer/inference/confidence.h"

namespace transformer {

namespace {

using nlohmann::ordered_json;

ordered_json words_of(std::string_view text) {
  auto words = ordered_json::array();
  for (const auto word : alignment_words(text)) words.push_back(std::string(word));
  return words;
}

std::string as_line(const ordered_json& json) {
  // Pieces of a vocabulary that is not ours may be broken text.
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

/// `required`: what Translation::missing counts in.
ordered_json object_of(const Translation& translation, const std::optional<std::vector<AlignmentLink>>& links,
                       const Vocabulary& vocabulary, const std::vector<std::string>& required) {
  ordered_json pieces = ordered_json::array(), alignment;
  for (const int64_t token : translation.tokens) pieces.push_back(vocabulary.piece(token));
  if (links) {
    alignment = ordered_json::array();
    for (const auto& link : *links) alignment.push_back({link.source, link.target});
  }
  const auto number = [](double value) { return std::isnan(value) ? ordered_json() : ordered_json(value); };
  ordered_json object = {
      {"text", translation.text},
      {"score", translation.score},
      {"log_probability", translation.log_probability},
      {"confidence", number(confidence(translation))},
      {"entropy", number(entropy(translation))},
      {"finished", translation.finished},
      {"tokens", std::move(pieces)},
      {"token_log_probabilities", translation.token_log_probabilities},
      {"words", words_of(translation.text)},
      {"word_confidences", word_confidences(translation, vocabulary)},
      {"word_entropies",
       translation.token_entropies.empty() ? ordered_json() : ordered_json(word_entropies(translation, vocabulary))},
      {"alignment", std::move(alignment)}};
  for (const size_t phrase : translation.missing) object["missing_phrases"].push_back(required.at(phrase));
  return object;
}

}  // namespace

std::string to_json(std::string_view source, const std::vector<Translation>& translations,
                    const TranslationLinks& links, const Vocabulary& vocabulary, bool n_best,
                    const std::vector<std::string>& required) {
  auto result = object_of(translations.front(), links.front(), vocabulary, required);
  result["source_words"] = words_of(source);
  if (n_best) {
    auto& all = result["n_best"] = ordered_json::array();
    for (size_t i = 0; i < translations.size(); ++i) {
      all.push_back(object_of(translations[i], links[i], vocabulary, required));
    }
  }
  return as_line(result);
}

std::string to_json(std::string_view text, std::string_view problem) {
  return as_line({{"text", std::string(text)}, {"problem", std::string(problem)}});
}

std::string to_json(std::string_view written, const TranslatedText& text, const TranslationLinks& links,
                    const Vocabulary& vocabulary) {
  ordered_json sentences = ordered_json::array();
  for (size_t i = 0; i < text.segments.size(); ++i) {
    auto sentence = object_of(text.segments[i], links[i], vocabulary, text.required[i]);
    const auto source = text.source.segment(i);
    sentence["source"] = std::string(source);
    sentence["source_words"] = words_of(source);
    sentences.push_back(std::move(sentence));
  }
  return as_line({{"text", std::string(written)}, {"sentences", std::move(sentences)}});
}

}  // namespace transformer
