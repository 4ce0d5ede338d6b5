#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace transformer {

/// Mean and sample standard deviation (divisor n - 1) of finite values.
struct Spread {
  int64_t count = 0;                // finite values
  double mean = 0;                  // 0 where count is 0
  std::optional<double> deviation;  // absent below two values
};

/// Values that are not finite are left out, and not counted.
Spread spread_of(const std::vector<double>& values);

/// How a row's mean stands to the base row's, measured by the spread of the base row's seeds.
struct RowDifference {
  /// Whether the difference is more than chance.
  enum class Verdict {
    unknown,  // the base row has fewer than two seeds, so that chance cannot be told from effect
    within,   // |difference| <= limit: seeds alone explain it
    beyond,   // more than the seeds' spread
  };
  double difference = 0;               // row - base
  double limit = 0;                    // 2 s sqrt(1/n_row + 1/n_base); 0 where the verdict is unknown
  Verdict verdict = Verdict::unknown;  // of the difference
};

/// `s` is the sample standard deviation of the base row over its n_base seeds; it serves all rows, because a row has
/// often one seed itself. Absent where either row has no value.
std::optional<RowDifference> compare_to_base(const Spread& row, const Spread& base);

/// How often a row that equals the base row is found beyond its spread all the same: P(|t| > 2) for Student's t with
/// base_seeds - 1 degrees of freedom. 0.295 for two seeds, 0.184 for three, 0.116 for five, falling to 0.046.
/// Throws std::invalid_argument below two seeds.
double chance_beyond(int64_t base_seeds);

/// Spearman's rank correlation of pairs; equal values share their mean rank. Absent below three pairs and where all
/// values of a side are equal.
std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs);

}  // namespace transformer
