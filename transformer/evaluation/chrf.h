#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transformer/evaluation/statistics.h"

namespace transformer {

/// The defaults are chrF2; `{.word_order = 2}` is chrF++.
struct ChrfOptions {
  int64_t character_order = 6;  // n-grams of 1 to so many characters
  int64_t word_order = 0;       // and of 1 to so many words; 0: none
  int64_t beta = 2;             // how much more recall counts than precision
  bool lowercase = false;       // of both sides
};

/// Character n-gram F-score of a corpus in per cent (Popović 2015, 2017), equal to sacreBLEU 2; white space does not
/// count. `references[k][i]` is the k-th reference of sentence i; each sentence is scored on the one that suits it
/// best. Throws Error when the numbers of sentences differ or are zero.
double corpus_chrf(const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
                   const ChrfOptions& options = {});

/// A row is [n-grams of the hypothesis, of the reference, matches] for each character order, then each word order.
Statistics chrf_statistics(const std::vector<std::string>& hypotheses,
                           const std::vector<std::vector<std::string>>& references, const ChrfOptions& options = {});
/// Of a sum of rows that chrf_statistics gave with the same options.
double chrf_from_statistics(std::span<const int64_t> sum, const ChrfOptions& options = {});
/// What a sentence's row is counted from: of each character order, then of each word order.
std::vector<NgramCounts> chrf_ngrams(const std::string& sentence, const ChrfOptions& options = {});

/// "chrF2", with a + for each word order: "chrF2++".
std::string chrf_name(const ChrfOptions& options);
/// `nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:transformer-0.1.0`. `resampling` goes behind nrefs.
std::string chrf_signature(const ChrfOptions& options, int64_t references, const std::string& resampling = "");

}  // namespace transformer
