#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "transformer/inference/decoding_settings.h"

namespace transformer {

/// Of a token that cannot come, and less than any that can.
inline constexpr float impossible_logit = -std::numeric_limits<float>::infinity();

/// The most that are selected while scores pass by.
inline constexpr int64_t widest_selection = 64;

/// Of `scores` the `count` highest that are not -infinity (fewer where there are no more), as (score, token), best
/// first, equal ones by token.
///
/// Of more than `widest_selection`, its heap is quicker than to sort each into those before it, as kernels do
/// (Selection).
void best_of(std::span<const float> scores, int64_t count, std::vector<std::pair<float, int64_t>>& best);

/// log of the sum of exp(scores) [n], whatever their size; -infinity where none is more than that.
double log_sum_exp(std::span<const float> scores);

/// A token drawn from `logits` [V], a token of -infinity never: with probability proportional to
/// exp(logit / temperature), among those that `settings` leave, top_k first, then top_p, then min_p. `uniform` in
/// [0, 1) decides. -1: there is none.
int64_t draw(std::span<const float> logits, const DecodingSettings& settings, double uniform);

}  // namespace transformer
