#include "transformer/inference/confidence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "transformer/inference/attention_maps.h"
#include "transformer/inference/word_alignment.h"

namespace transformer {

double confidence(const Translation& translation) {
  const auto& tokens = translation.token_log_probabilities;
  if (tokens.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::exp(std::accumulate(tokens.begin(), tokens.end(), 0.0) / static_cast<double>(tokens.size()));
}

std::vector<double> word_confidences(const Translation& translation, const Vocabulary& vocabulary) {
  if (translation.token_log_probabilities.size() < translation.tokens.size()) {
    throw std::invalid_argument("word_confidences: fewer log-probabilities than tokens");
  }
  const size_t words = alignment_words(translation.text).size();
  // A word that no piece is known to spell is as sure as the sentence is.
  std::vector<double> result(words, confidence(translation));
  const auto joined = joined_tokens(vocabulary, written_tokens(translation.tokens));
  const auto places = places_in_line(joined, words);
  std::vector<double> sums(joined.words.size());
  std::vector<int64_t> counts(joined.words.size());
  for (size_t token = 0; token < translation.tokens.size(); ++token) {
    const auto word = static_cast<size_t>(joined.word_of[token]);
    sums[word] += translation.token_log_probabilities[token];
    ++counts[word];
  }
  for (size_t word = 0; word < places.size(); ++word) {
    if (places[word] < 0 || counts[word] == 0) continue;
    const auto begin = static_cast<size_t>(places[word]);
    const size_t end =
        word + 1 < places.size() && places[word + 1] >= 0 ? static_cast<size_t>(places[word + 1]) : words;
    std::fill(result.begin() + static_cast<std::ptrdiff_t>(begin), result.begin() + static_cast<std::ptrdiff_t>(end),
              std::exp(sums[word] / static_cast<double>(counts[word])));
  }
  return result;
}

}  // namespace transformer
