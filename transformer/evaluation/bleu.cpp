#include "transformer/evaluation/bleu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "transformer/base/ascii.h"
#include "transformer/base/replaced.h"
#include "transformer/base/unicode.h"
#include "transformer/evaluation/lowercase.h"

namespace transformer {
namespace {

using Tokenizer = BleuOptions::Tokenizer;
using Smoothing = BleuOptions::Smoothing;

bool is_stop(char c) {
  return c == '.' || c == ',';
}

/// ASCII punctuation and symbols without the apostrophe, the comma, the hyphen and the full stop.
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

/// Left to right, replaces each two neighbouring characters that `matches` accepts with "`head`first`middle`second
/// `tail`"; a replaced character takes part in no other match.
template <class Matches>
std::string replace_pairs(std::string_view text, Matches matches, std::string_view head, std::string_view middle,
                          std::string_view tail) {
  std::string result;
  result.reserve(text.size() * 3 / 2);
  for (size_t i = 0; i < text.size();) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      result.append(head).append(1, text[i]).append(middle).append(1, text[i + 1]).append(tail);
      i += 2;
    } else {
      result.push_back(text[i++]);
    }
  }
  return result;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string text;
  for (const auto word : words) {
    if (!text.empty()) text.push_back(' ');
    text.append(word);
  }
  return text;
}

/// The n-grams of a sentence and how often each occurs. Keys are stretches of the tokens joined by single spaces, in
/// which no token contains one, so equal stretches are equal n-grams.
struct TokenNgrams {
  std::string tokens;
  int64_t length = 0;
  std::array<std::unordered_map<std::string_view, int64_t>, Bleu::orders> counts;

  TokenNgrams(const std::string& sentence, const BleuOptions& options) {
    std::string text = options.lowercase ? lowercase(sentence) : sentence;
    text = trim_end(text);
    if (options.tokenizer == Tokenizer::mteval_13a) text = tokenize_13a(text);
    if (options.compound_split) text = split_compounds(text);
    tokens = join(split_words(text));
    const std::string_view all = tokens;
    const auto words = split_words(all);
    length = static_cast<int64_t>(words.size());
    for (size_t n = 1; n <= counts.size(); ++n) {
      for (size_t i = 0; i + n <= words.size(); ++i) {
        const size_t begin = words[i].data() - all.data();
        const size_t end = words[i + n - 1].data() + words[i + n - 1].size() - all.data();
        ++counts[n - 1][all.substr(begin, end - begin)];
      }
    }
  }
  // The keys point into `tokens`.
  TokenNgrams(const TokenNgrams&) = delete;
  TokenNgrams& operator=(const TokenNgrams&) = delete;
};

double default_value(Smoothing smoothing) {
  return smoothing == Smoothing::floor ? 0.1 : smoothing == Smoothing::add_k ? 1.0 : 0.0;
}

}  // namespace

std::string tokenize_13a(std::string_view text) {
  auto line = replaced(text, "<skipped>", "");
  line = replaced(line, "-\n", "");
  line = replaced(line, "\n", " ");
  line = replaced(line, "&quot;", "\"");
  line = replaced(line, "&amp;", "&");
  line = replaced(line, "&lt;", "<");
  line = replaced(line, "&gt;", ">");
  // The spaces around the line give its first and last character a neighbour for the rules below to see.
  std::string spaced;
  for (const char c : " " + line + " ") {
    if (stands_alone(c)) {
      spaced.append({' ', c, ' '});
    } else {
      spaced.push_back(c);
    }
  }
  // Stops apart unless a digit precedes; unless a digit follows; hyphens apart from a digit before. A multi-byte
  // character's last or first byte is no digit, so bytes do for characters.
  spaced = replace_pairs(
      spaced, [](char a, char b) { return !is_ascii_digit(a) && is_stop(b); }, "", " ", " ");
  spaced = replace_pairs(
      spaced, [](char a, char b) { return is_stop(a) && !is_ascii_digit(b); }, " ", " ", "");
  spaced = replace_pairs(
      spaced, [](char a, char b) { return is_ascii_digit(a) && b == '-'; }, "", " ", " ");
  return join(split_words(spaced));
}

std::string split_compounds(std::string_view text) {
  std::string result;
  for (size_t position = 0; position < text.size();) {
    const size_t first = position;
    if (!is_blank(next_code_point(text, position)) && position < text.size() && text[position] == '-') {
      size_t end = position + 1;
      if (end < text.size() && !is_blank(next_code_point(text, end))) {
        result.append(text.substr(first, position - first)).append(" ##AT##-##AT## ");
        result.append(text.substr(position + 1, end - position - 1));
        position = end;
        continue;
      }
    }
    result.append(text.substr(first, position - first));
  }
  return result;
}

Statistics bleu_statistics(const std::vector<std::string>& hypotheses,
                           const std::vector<std::vector<std::string>>& references, const BleuOptions& options) {
  check_parallel(hypotheses, references);
  Statistics statistics{.width = 2 + 2 * Bleu::orders, .values = {}};
  statistics.values.reserve(hypotheses.size() * statistics.width);
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const TokenNgrams hypothesis(hypotheses[i], options);
    int64_t closest = -1;
    std::array<std::unordered_map<std::string_view, int64_t>, Bleu::orders> matched;
    for (const auto& reference_lines : references) {
      const TokenNgrams reference(reference_lines[i], options);
      const int64_t difference = std::abs(reference.length - hypothesis.length);
      const int64_t smallest = std::abs(closest - hypothesis.length);
      if (closest < 0 || difference < smallest || (difference == smallest && reference.length < closest)) {
        closest = reference.length;
      }
      // An n-gram counts as often as it occurs in the reference that has the most of it. The keys kept are the
      // hypothesis's, which outlive the reference.
      for (size_t n = 0; n < matched.size(); ++n) {
        for (const auto& [ngram, count] : hypothesis.counts[n]) {
          const auto found = reference.counts[n].find(ngram);
          if (found == reference.counts[n].end()) continue;
          int64_t& best = matched[n][ngram];
          best = std::max(best, std::min(count, found->second));
        }
      }
    }
    statistics.values.push_back(hypothesis.length);
    statistics.values.push_back(closest);
    for (const auto& order : matched) {
      int64_t matches = 0;
      for (const auto& [ngram, count] : order) matches += count;
      statistics.values.push_back(matches);
    }
    for (int64_t n = 1; n <= Bleu::orders; ++n) {
      statistics.values.push_back(std::max<int64_t>(hypothesis.length - n + 1, 0));
    }
  }
  return statistics;
}

std::vector<NgramCounts> bleu_ngrams(const std::string& sentence, const BleuOptions& options) {
  const TokenNgrams ngrams(sentence, options);
  std::vector<NgramCounts> orders;
  for (const auto& counts : ngrams.counts) orders.emplace_back(counts.begin(), counts.end());
  return orders;
}

Bleu bleu_from_statistics(std::span<const int64_t> sum, const BleuOptions& options) {
  Bleu bleu;
  bleu.hypothesis_length = sum[0];
  bleu.reference_length = sum[1];
  for (int64_t n = 0; n < Bleu::orders; ++n) {
    bleu.matches[n] = sum[2 + n];
    bleu.totals[n] = sum[2 + Bleu::orders + n];
  }
  bleu.brevity_penalty = 1;
  if (bleu.hypothesis_length < bleu.reference_length) {
    bleu.brevity_penalty =
        bleu.hypothesis_length == 0
            ? 0.0
            : std::exp(1 - static_cast<double>(bleu.reference_length) / static_cast<double>(bleu.hypothesis_length));
  }
  if (std::all_of(bleu.matches.begin(), bleu.matches.end(), [](int64_t count) { return count == 0; })) return bleu;

  const double value = options.smoothing_value.value_or(default_value(options.smoothing));
  double halving = 1;  // exponential smoothing halves the count it pretends at each further order without a match
  int64_t order = Bleu::orders;
  for (int64_t n = 0; n < Bleu::orders; ++n) {
    double matches = static_cast<double>(bleu.matches[n]), total = static_cast<double>(bleu.totals[n]);
    if (options.smoothing == Smoothing::add_k && n > 0) {
      matches += value;
      total += value;
    }
    if (total == 0) break;
    if (options.effective_order) order = n + 1;
    if (matches != 0) {
      bleu.precisions[n] = 100 * matches / total;
    } else if (options.smoothing == Smoothing::exponential) {
      halving *= 2;
      bleu.precisions[n] = 100 / (halving * total);
    } else if (options.smoothing == Smoothing::floor) {
      bleu.precisions[n] = 100 * value / total;
    }
  }
  double log_sum = 0;
  for (int64_t n = 0; n < order; ++n) {
    log_sum += bleu.precisions[n] == 0 ? -std::numeric_limits<double>::infinity() : std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / static_cast<double>(order));
  return bleu;
}

Bleu corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
                 const BleuOptions& options) {
  return bleu_from_statistics(bleu_statistics(hypotheses, references, options).sum(), options);
}

Bleu sentence_bleu(const std::string& hypothesis, const std::vector<std::string>& references, BleuOptions options) {
  options.effective_order = true;
  std::vector<std::vector<std::string>> columns;
  for (const auto& reference : references) columns.push_back({reference});
  return corpus_bleu({hypothesis}, columns, options);
}

double Bleu::ratio() const {
  return reference_length == 0 ? 0 : static_cast<double>(hypothesis_length) / static_cast<double>(reference_length);
}

std::string bleu_name(const BleuOptions& options) {
  if (options.compound_split) return "compound-split BLEU";
  return options.tokenizer == Tokenizer::none ? "tokenized BLEU" : "BLEU";
}

std::string to_string(const Bleu& bleu, const BleuOptions& options) {
  return fmt::format("{} = {:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})",
                     bleu_name(options), bleu.score, bleu.precisions[0], bleu.precisions[1], bleu.precisions[2],
                     bleu.precisions[3], bleu.brevity_penalty, bleu.ratio(), bleu.hypothesis_length,
                     bleu.reference_length);
}

std::string bleu_signature(const BleuOptions& options, int64_t references, const std::string& resampling) {
  std::string smoothing = "none";
  const double value = options.smoothing_value.value_or(default_value(options.smoothing));
  if (options.smoothing == Smoothing::exponential) smoothing = "exp";
  if (options.smoothing == Smoothing::floor) smoothing = fmt::format("floor[{:.2f}]", value);
  if (options.smoothing == Smoothing::add_k) smoothing = fmt::format("add-k[{:.2f}]", value);
  return fmt::format("nrefs:{}{}|case:{}|eff:{}|tok:{}{}|smooth:{}|version:transformer-{}", references,
                     resampling.empty() ? "" : "|" + resampling, options.lowercase ? "lc" : "mixed",
                     options.effective_order ? "yes" : "no", options.tokenizer == Tokenizer::none ? "none" : "13a",
                     options.compound_split ? "+compound-split" : "", smoothing, TRANSFORMER_VERSION);
}

}  // namespace transformer
