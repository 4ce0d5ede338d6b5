#include "transformer/evaluation/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/text/random.h"

namespace transformer {
namespace {

/// Uniform in [0, bound), bound below 2^32, without the division of Random::below.
int64_t draw_below(Random& random, int64_t bound) {
  return static_cast<int64_t>((random.next() >> 32) * static_cast<uint64_t>(bound) >> 32);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Estimate estimate(double score, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t tail = samples.size() / 40;
  return {.score = score, .mean = mean(samples), .lower = samples[tail], .upper = samples[samples.size() - tail - 1]};
}

}  // namespace

Comparison paired_bootstrap(const Statistics& baseline, const Statistics& system,
                            const std::function<double(std::span<const int64_t>)>& score,
                            const BootstrapOptions& options) {
  const int64_t sentences = baseline.sentences();
  if (sentences != system.sentences()) {
    throw Error("", fmt::format("the baseline has {} sentences, the system {}", sentences, system.sentences()),
                "compare translations of the same text");
  }
  if (sentences == 0) throw Error("", "no sentences to compare");
  if (options.samples < 1) throw Error("", "at least one sample is needed");

  std::vector<double> baseline_scores, system_scores, differences;
  Random random(options.seed);
  std::vector<int64_t> baseline_sum(baseline.width), system_sum(system.width);
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    std::fill(baseline_sum.begin(), baseline_sum.end(), 0);
    std::fill(system_sum.begin(), system_sum.end(), 0);
    for (int64_t draw = 0; draw < sentences; ++draw) {
      const int64_t sentence = draw_below(random, sentences);
      const auto baseline_row = baseline.row(sentence), system_row = system.row(sentence);
      for (size_t i = 0; i < baseline_row.size(); ++i) baseline_sum[i] += baseline_row[i];
      for (size_t i = 0; i < system_row.size(); ++i) system_sum[i] += system_row[i];
    }
    baseline_scores.push_back(score(baseline_sum));
    system_scores.push_back(score(system_sum));
    differences.push_back(system_scores.back() - baseline_scores.back());
  }

  const double baseline_score = score(baseline.sum()), system_score = score(system.sum());
  const double centre = mean(differences), observed = std::abs(system_score - baseline_score);
  const auto as_large = std::count_if(differences.begin(), differences.end(),
                                      [&](double value) { return std::abs(value - centre) >= observed; });
  // Draws that are all alike, as of one sentence, do not tell what chance does; counted, they would speak against it.
  const bool all_alike =
      std::all_of(differences.begin(), differences.end(), [&](double value) { return value == differences.front(); });
  return {.baseline = estimate(baseline_score, std::move(baseline_scores)),
          .system = estimate(system_score, std::move(system_scores)),
          .difference = estimate(system_score - baseline_score, std::move(differences)),
          .p_value = all_alike ? 1.0 : static_cast<double>(as_large + 1) / static_cast<double>(options.samples + 1)};
}

}  // namespace transformer
