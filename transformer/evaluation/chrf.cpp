#include "transformer/evaluation/chrf.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "transformer/base/unicode.h"
#include "transformer/evaluation/lowercase.h"

namespace transformer {
namespace {

using Counts = std::unordered_map<std::string_view, int64_t>;

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/// Words, with one punctuation mark at the end, or else at the beginning, as a word of its own.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (const auto word : split_words(text)) {
    size_t first = 0;
    next_code_point(word, first);
    const bool splits = first < word.size();  // a character alone stays
    if (splits && is_ascii_punctuation(word.back())) {
      words.push_back(word.substr(0, word.size() - 1));
      words.push_back(word.substr(word.size() - 1));
    } else if (splits && is_ascii_punctuation(word.front())) {
      words.push_back(word.substr(0, 1));
      words.push_back(word.substr(1));
    } else {
      words.push_back(word);
    }
  }
  return words;
}

/// Counts stretches of `order` units of `text`; unit i is [starts[i], ends[i]).
Counts count(std::string_view text, const std::vector<size_t>& starts, const std::vector<size_t>& ends, size_t order) {
  Counts counts;
  for (size_t i = 0; i + order <= starts.size(); ++i) {
    ++counts[text.substr(starts[i], ends[i + order - 1] - starts[i])];
  }
  return counts;
}

/// A sentence's n-grams: character orders, then word orders.
struct Ngrams {
  std::string characters, words;
  std::vector<Counts> orders;

  Ngrams(const std::string& sentence, const ChrfOptions& options) {
    const std::string text = options.lowercase ? lowercase(sentence) : sentence;
    std::vector<size_t> starts, ends;
    for (const auto word : split_words(text)) characters.append(word);
    for (size_t position = 0; position < characters.size();) {
      starts.push_back(position);
      next_code_point(characters, position);
      ends.push_back(position);
    }
    for (int64_t n = 1; n <= options.character_order; ++n) orders.push_back(count(characters, starts, ends, n));

    if (options.word_order == 0) return;
    starts.clear();
    ends.clear();
    for (const auto word : words_of(text)) {
      if (!words.empty()) words.push_back(' ');
      starts.push_back(words.size());
      words.append(word);
      ends.push_back(words.size());
    }
    for (int64_t n = 1; n <= options.word_order; ++n) orders.push_back(count(words, starts, ends, n));
  }
  // The keys point into `characters` and `words`.
  Ngrams(const Ngrams&) = delete;
  Ngrams& operator=(const Ngrams&) = delete;
};

int64_t total(const Counts& counts) {
  int64_t sum = 0;
  for (const auto& [ngram, count] : counts) sum += count;
  return sum;
}

}  // namespace

Statistics chrf_statistics(const std::vector<std::string>& hypotheses,
                           const std::vector<std::vector<std::string>>& references, const ChrfOptions& options) {
  check_parallel(hypotheses, references);
  Statistics statistics{.width = 3 * (options.character_order + options.word_order), .values = {}};
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const Ngrams hypothesis(hypotheses[i], options);
    std::vector<int64_t> best;
    double best_score = -1;
    for (const auto& lines : references) {
      const Ngrams reference(lines[i], options);
      std::vector<int64_t> row;
      for (size_t order = 0; order < hypothesis.orders.size(); ++order) {
        const Counts& ours = hypothesis.orders[order];
        const Counts& theirs = reference.orders[order];
        int64_t matches = 0;
        for (const auto& [ngram, occurrences] : ours) {
          const auto found = theirs.find(ngram);
          if (found != theirs.end()) matches += std::min(occurrences, found->second);
        }
        // A reference too short for an order does not make the hypothesis's n-grams wrong.
        row.insert(row.end(), {theirs.empty() ? 0 : total(ours), total(theirs), matches});
      }
      const double score = chrf_from_statistics(row, options);
      if (score > best_score) {
        best_score = score;
        best = std::move(row);
      }
    }
    statistics.values.insert(statistics.values.end(), best.begin(), best.end());
  }
  return statistics;
}

std::vector<NgramCounts> chrf_ngrams(const std::string& sentence, const ChrfOptions& options) {
  const Ngrams ngrams(sentence, options);
  std::vector<NgramCounts> orders;
  for (const auto& counts : ngrams.orders) orders.emplace_back(counts.begin(), counts.end());
  return orders;
}

double chrf_from_statistics(std::span<const int64_t> sum, const ChrfOptions& options) {
  double precision = 0, recall = 0;
  int64_t effective_orders = 0;
  for (size_t i = 0; i + 2 < sum.size(); i += 3) {
    if (sum[i] == 0 || sum[i + 1] == 0) continue;
    precision += static_cast<double>(sum[i + 2]) / static_cast<double>(sum[i]);
    recall += static_cast<double>(sum[i + 2]) / static_cast<double>(sum[i + 1]);
    ++effective_orders;
  }
  if (precision + recall == 0) return 0;
  precision /= static_cast<double>(effective_orders);
  recall /= static_cast<double>(effective_orders);
  const double factor = static_cast<double>(options.beta * options.beta);
  return 100 * ((1 + factor) * precision * recall / (factor * precision + recall));
}

double corpus_chrf(const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
                   const ChrfOptions& options) {
  return chrf_from_statistics(chrf_statistics(hypotheses, references, options).sum(), options);
}

std::string chrf_name(const ChrfOptions& options) {
  return fmt::format("chrF{}{}", options.beta, std::string(options.word_order, '+'));
}

std::string chrf_signature(const ChrfOptions& options, int64_t references, const std::string& resampling) {
  return fmt::format("nrefs:{}{}|case:{}|eff:yes|nc:{}|nw:{}|space:no|version:transformer-{}", references,
                     resampling.empty() ? "" : "|" + resampling, options.lowercase ? "lc" : "mixed",
                     options.character_order, options.word_order, TRANSFORMER_VERSION);
}

}  // namespace transformer
