#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/evaluation/statistics.h"

namespace transformer {

/// Which BLEU is computed. The default is sacreBLEU's, to be used on plain text. `{.tokenizer = none}` scores text
/// that is tokenized already. The paper's English-German figures (Table 2) split compounds and tokenize:
/// `{.tokenizer = ..., .smoothing = none, .compound_split = true}`; they are higher than sacreBLEU's on the same text.
struct BleuOptions {
  /// How text becomes words.
  enum class Tokenizer {
    mteval_13a,  // tokenize_13a
    none         // words are what blanks separate
  };
  /// What stands for orders without a match.
  enum class Smoothing {
    none,        // nothing: the score is 0
    floor,       // `smoothing_value` matches
    add_k,       // `smoothing_value` more matches and n-grams, from 2-grams on
    exponential  // half a match, a quarter, and so on
  };
  Tokenizer tokenizer = Tokenizer::mteval_13a;           // after lowering case
  Smoothing smoothing = Smoothing::exponential;          // of orders that have n-grams
  std::optional<double> smoothing_value = std::nullopt;  // by default 0.1 for floor, 1 for add_k; the others take none
  bool lowercase = false;                                // of both sides
  bool effective_order = false;  // leave out orders longer than the sentence: for single sentences
  bool compound_split = false;   // after tokenizing, score the parts of hyphenated words as tokens
};

/// BLEU up to 4-grams (Papineni et al. 2002), in per cent.
struct Bleu {
  /// n-grams of 1 to 4 tokens count.
  static constexpr int64_t orders = 4;
  double score = 0;                                     // from 0 to 100
  std::array<double, orders> precisions{};              // of each order, in per cent
  double brevity_penalty = 0;                           // exp(1 - reference / hypothesis length), at most 1
  int64_t hypothesis_length = 0, reference_length = 0;  // tokens
  std::array<int64_t, orders> matches{}, totals{};      // n-grams: found in a reference, and of the hypotheses
  double ratio() const;                                 // hypothesis over reference length
};

/// BLEU of a corpus; `references[k][i]` is the k-th reference of sentence i. Equal to sacreBLEU 2 (and, with
/// `compound_split` and no smoothing, to multi-bleu.perl after get_ende_bleu.sh's compound splitting).
/// Throws Error when the numbers of sentences differ or are zero.
Bleu corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
                 const BleuOptions& options = {});
/// BLEU of one sentence: of the orders that it is long enough for.
Bleu sentence_bleu(const std::string& hypothesis, const std::vector<std::string>& references, BleuOptions options = {});

/// A row is [hypothesis length, closest reference length, 4 match counts, 4 n-gram counts].
Statistics bleu_statistics(const std::vector<std::string>& hypotheses,
                           const std::vector<std::vector<std::string>>& references, const BleuOptions& options = {});
/// Of a sum of rows that bleu_statistics gave with the same options.
Bleu bleu_from_statistics(std::span<const int64_t> sum, const BleuOptions& options = {});
/// What a sentence's row is counted from: of each order.
std::vector<NgramCounts> bleu_ngrams(const std::string& sentence, const BleuOptions& options = {});

/// "BLEU", "tokenized BLEU" or "compound-split BLEU", so that figures of different kinds are not taken for each other.
std::string bleu_name(const BleuOptions& options);
/// `BLEU = 27.60 58.1/33.2/21.0/13.7 (BP = 1.000 ratio = 1.012 hyp_len = 12345 ref_len = 12200)`.
std::string to_string(const Bleu& bleu, const BleuOptions& options);
/// `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:transformer-0.1.0`. `resampling` ("bs:1000|seed:1") goes
/// behind nrefs.
std::string bleu_signature(const BleuOptions& options, int64_t references, const std::string& resampling = "");

/// mteval-v13a's tokenization: punctuation and symbols apart, but not within numbers; single spaces between tokens.
std::string tokenize_13a(std::string_view text);
/// `high-quality` becomes `high ##AT##-##AT## quality`. Matches do not overlap: the letter between two hyphens is
/// parted from the first only.
std::string split_compounds(std::string_view text);

}  // namespace transformer
