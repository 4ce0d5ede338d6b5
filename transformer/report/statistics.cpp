#include "transformer/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <numeric>
#include <stdexcept>

namespace transformer {

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    ++spread.count;
    spread.mean += (value - spread.mean) / static_cast<double>(spread.count);
  }
  if (spread.count < 2) return spread;
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value - spread.mean));
  }
  // Squares of what is huge are no numbers, and of what is tiny nothing. By a power of two, which rounds nothing.
  const int scale = largest > 0 ? std::ilogb(largest) : 0;
  double squares = 0;
  for (const double value : values) {
    const double scaled = std::scalbn(value - spread.mean, -scale);
    if (std::isfinite(value)) squares += scaled * scaled;
  }
  spread.deviation = std::scalbn(std::sqrt(squares / static_cast<double>(spread.count - 1)), scale);
  return spread;
}

std::optional<RowDifference> compare_to_base(const Spread& row, const Spread& base) {
  if (row.count == 0 || base.count == 0) return std::nullopt;
  RowDifference result{.difference = row.mean - base.mean};
  if (!base.deviation) return result;
  const double n = static_cast<double>(row.count), m = static_cast<double>(base.count);
  result.limit = 2 * *base.deviation * std::sqrt(1 / n + 1 / m);
  result.verdict =
      std::abs(result.difference) <= result.limit ? RowDifference::Verdict::within : RowDifference::Verdict::beyond;
  return result;
}

double chance_beyond(int64_t base_seeds) {
  if (base_seeds < 2) throw std::invalid_argument("chance_beyond: fewer than two seeds");
  // Student's t by the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
  const int64_t freedom = base_seeds - 1;
  if (freedom > 100000) return std::erfc(2 / std::sqrt(2.0));
  const double angle = std::atan(2 / std::sqrt(static_cast<double>(freedom)));
  const double sine = std::sin(angle), square = std::cos(angle) * std::cos(angle);
  if (freedom % 2 == 0) {
    double sum = 0, term = 1;
    for (int64_t i = 0; i < freedom / 2; ++i) {
      sum += term;
      term *= square * static_cast<double>(2 * i + 1) / static_cast<double>(2 * i + 2);
    }
    return 1 - sine * sum;
  }
  double sum = 0, term = std::cos(angle);
  for (int64_t i = 1; i <= (freedom - 1) / 2; ++i) {
    sum += term;
    term *= square * static_cast<double>(2 * i) / static_cast<double>(2 * i + 1);
  }
  return 1 - 2 / std::numbers::pi * (angle + sine * sum);
}

std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs) {
  if (pairs.size() < 3) return std::nullopt;
  const auto ranks = [&](double std::pair<double, double>::*side) {
    std::vector<size_t> order(pairs.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pairs[a].*side < pairs[b].*side; });
    std::vector<double> result(pairs.size());
    for (size_t from = 0; from < order.size();) {
      size_t to = from;
      while (to < order.size() && pairs[order[to]].*side == pairs[order[from]].*side) ++to;
      for (size_t i = from; i < to; ++i) result[order[i]] = 0.5 * static_cast<double>(from + to - 1);
      from = to;
    }
    return result;
  };
  const auto first = ranks(&std::pair<double, double>::first), second = ranks(&std::pair<double, double>::second);
  const double mean = 0.5 * static_cast<double>(pairs.size() - 1);
  double product = 0, first_square = 0, second_square = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    product += (first[i] - mean) * (second[i] - mean);
    first_square += (first[i] - mean) * (first[i] - mean);
    second_square += (second[i] - mean) * (second[i] - mean);
  }
  if (first_square == 0 || second_square == 0) return std::nullopt;
  return product / std::sqrt(first_square * second_square);
}

}  // namespace transformer
