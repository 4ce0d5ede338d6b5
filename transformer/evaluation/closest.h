#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transformer/evaluation/minimum_bayes_risk.h"

namespace transformer {

/// One of several translations, and what it scores against the reference, in per cent.
struct Closest {
  size_t index = 0;  // among the hypotheses
  double score = 0;  // of the sentence
};

/// Of `hypotheses`, the one that is most like `reference`, the first of those that are alike: what a student learns
/// from in sequence-level interpolation (Kim and Rush 2016, §3.3). Throws Error where there are none.
Closest closest_to(const std::string& reference, const std::vector<std::string>& hypotheses, const Utility& utility);

}  // namespace transformer
