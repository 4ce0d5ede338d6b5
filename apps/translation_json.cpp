#include "apps/translation_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "transformer/inference/confidence.h"

namespace transformer {

namespace {

using nlohmann::ordered_json;

ordered_json to_json(const Translation& translation, const std::optional<std::vector<AlignmentLink>>& links,
                     const Vocabulary& vocabulary) {
  ordered_json pieces = ordered_json::array(), words = ordered_json::array(), alignment;
  for (const int64_t token : translation.tokens) pieces.push_back(vocabulary.piece(token));
  for (const auto word : alignment_words(translation.text)) words.push_back(std::string(word));
  if (links) {
    alignment = ordered_json::array();
    for (const auto& link : *links) alignment.push_back({link.source, link.target});
  }
  const double sentence = confidence(translation);
  return {{"text", translation.text},
          {"score", translation.score},
          {"log_probability", translation.log_probability},
          {"confidence", std::isnan(sentence) ? ordered_json() : ordered_json(sentence)},
          {"finished", translation.finished},
          {"tokens", std::move(pieces)},
          {"token_log_probabilities", translation.token_log_probabilities},
          {"words", std::move(words)},
          {"word_confidences", word_confidences(translation, vocabulary)},
          {"alignment", std::move(alignment)}};
}

}  // namespace

std::string to_json(const TranslatedLine& line, const Vocabulary& vocabulary, bool n_best) {
  ordered_json result;
  if (line.problem.empty()) {
    result = to_json(line.translations.front(), line.links.front(), vocabulary);
    auto& words = result["source_words"] = ordered_json::array();
    for (const auto word : alignment_words(line.source)) words.push_back(std::string(word));
    if (n_best) {
      auto& all = result["n_best"] = ordered_json::array();
      for (size_t i = 0; i < line.translations.size(); ++i) {
        all.push_back(to_json(line.translations[i], line.links[i], vocabulary));
      }
    }
  } else {
    result = {{"text", line.translations.front().text}, {"problem", std::string(line.problem)}};
  }
  // Pieces of a vocabulary that is not ours may be broken text.
  return result.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace transformer
