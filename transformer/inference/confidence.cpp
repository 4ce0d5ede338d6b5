#include "transformer/inference/confidence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "transformer/inference/attention_maps.h"
#include "transformer/inference/word_alignment.h"

namespace transformer {

namespace {

double mean(const std::vector<double>& values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The mean of the tokens' `values` for each word of the text, over the pieces that spell it.
std::vector<double> means_of_words(const Translation& translation, const std::vector<double>& values,
                                   const Vocabulary& vocabulary) {
  if (values.size() < translation.tokens.size()) {
    throw std::invalid_argument("means_of_words: fewer values than tokens");
  }
  const size_t words = alignment_words(translation.text).size();
  // A word that no piece is known to spell is as the sentence is.
  std::vector<double> result(words, mean(values));
  const auto joined = joined_tokens(vocabulary, written_tokens(translation.tokens));
  const auto places = places_in_line(joined, words);
  std::vector<double> sums(joined.words.size());
  std::vector<int64_t> counts(joined.words.size());
  for (size_t token = 0; token < translation.tokens.size(); ++token) {
    const auto word = static_cast<size_t>(joined.word_of[token]);
    sums[word] += values[token];
    ++counts[word];
  }
  for (size_t word = 0; word < places.size(); ++word) {
    if (places[word] < 0 || counts[word] == 0) continue;
    const auto begin = static_cast<size_t>(places[word]);
    const size_t end =
        word + 1 < places.size() && places[word + 1] >= 0 ? static_cast<size_t>(places[word + 1]) : words;
    std::fill(result.begin() + static_cast<std::ptrdiff_t>(begin), result.begin() + static_cast<std::ptrdiff_t>(end),
              sums[word] / static_cast<double>(counts[word]));
  }
  return result;
}

}  // namespace

double confidence(const Translation& translation) {
  return std::exp(mean(translation.token_log_probabilities));
}

std::vector<double> word_confidences(const Translation& translation, const Vocabulary& vocabulary) {
  auto words = means_of_words(translation, translation.token_log_probabilities, vocabulary);
  for (double& word : words) word = std::exp(word);
  return words;
}

double entropy(const Translation& translation) {
  return mean(translation.token_entropies);
}

std::vector<double> word_entropies(const Translation& translation, const Vocabulary& vocabulary) {
  if (translation.token_entropies.empty()) return {};
  return means_of_words(translation, translation.token_entropies, vocabulary);
}

}  // namespace transformer
