#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "transformer/evaluation/statistics.h"

namespace transformer {

/// How sentences are drawn.
struct BootstrapOptions {
  int64_t samples = 1000;  // draws, each of as many sentences as there are
  uint64_t seed = 1;       // of all draws
};

/// A metric's value, and what resampling the sentences makes of it.
struct Estimate {
  double score = 0;             // on the sentences as they are
  double mean = 0;              // of the samples
  double lower = 0, upper = 0;  // 95 % of the samples lie between them
  /// For "score ± half width".
  double half_width() const { return 0.5 * (upper - lower); }
};

/// How two outputs for the same sentences compare.
struct Comparison {
  Estimate baseline, system, difference;  // difference: system - baseline
  double p_value = 1;                     // that equally good outputs differ so
};

/// Fewer sentences than these tell little: the fewer there are, the more often p is small by chance alone (of 10, about
/// one time in ten it is below .05).
inline constexpr int64_t few_sentences = 50;

/// Paired bootstrap resampling (Koehn 2004): both outputs are scored on the same `samples` random draws, with
/// replacement, of as many sentences as there are. With d the samples' differences,
/// p = (1 + #{|d - mean(d)| >= |observed difference|}) / (1 + samples): how often a difference as large as the observed
/// one, either way, would arise by chance between outputs that are equally good (Efron and Tibshirani 1993, chapter
/// 16). Where no sample differs from another p is 1.
///
/// Means and intervals are those of sacreBLEU's `paired_bs`; p is not. That one takes their mean from the absolute
/// differences |d|, which leaves too little spread: equally good outputs come below .05 about twice as often as they
/// should.
///
/// `score` computes the metric from summed counts. Draws depend on the seed and the number of sentences alone.
/// Throws Error when the outputs have unequal numbers of sentences or none, or there are no samples.
Comparison paired_bootstrap(const Statistics& baseline, const Statistics& system,
                            const std::function<double(std::span<const int64_t>)>& score,
                            const BootstrapOptions& options = {});

}  // namespace transformer
