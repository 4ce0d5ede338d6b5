#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "transformer/evaluation/bleu.h"
#include "transformer/evaluation/chrf.h"

namespace transformer {

/// By what a translation is judged against another: sentence chrF, or sentence BLEU (of the orders that it is long
/// enough for).
using Utility = std::variant<ChrfOptions, BleuOptions>;

/// How well each of `hypotheses` does on average where each of them in turn is taken for the truth (Kumar and Byrne
/// 2004; Eikema and Aziz 2020): the mean of its scores against all, itself included, in per cent. `weights`: how likely
/// each is to be the truth, up to a factor; none: all alike. The best of them has the least risk.
///
/// n-grams are counted once a hypothesis. Throws Error for weights that are not as many, not finite, negative or all 0.
std::vector<double> expected_utilities(const std::vector<std::string>& hypotheses, std::span<const double> weights = {},
                                       const Utility& utility = ChrfOptions());

}  // namespace transformer
