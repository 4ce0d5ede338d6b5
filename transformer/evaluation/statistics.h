#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace transformer {

/// Counts from which a metric computes a corpus's score: one row a sentence. A corpus's counts are the sum of its
/// sentences' rows, so a resampled corpus (paired_bootstrap) is scored without looking at text again.
struct Statistics {
  int64_t width = 0;            // counts of a sentence
  std::vector<int64_t> values;  // [sentences, width]

  /// Rows.
  int64_t sentences() const { return width == 0 ? 0 : static_cast<int64_t>(values.size()) / width; }
  /// One sentence's counts, [width].
  std::span<const int64_t> row(int64_t sentence) const {
    return {values.data() + sentence * width, static_cast<size_t>(width)};
  }
  /// Over all sentences, [width].
  std::vector<int64_t> sum() const {
    std::vector<int64_t> total(width, 0);
    for (size_t i = 0; i < values.size(); ++i) total[i % width] += values[i];
    return total;
  }
};

/// A sentence's n-grams of one order, each once, and how often it occurs.
using NgramCounts = std::vector<std::pair<std::string, int64_t>>;

/// `references[k][i]` is the k-th reference of sentence i. Throws Error unless there is a sentence, a reference, and
/// every reference has as many sentences as there are hypotheses.
void check_parallel(const std::vector<std::string>& hypotheses,
                    const std::vector<std::vector<std::string>>& references);

}  // namespace transformer
