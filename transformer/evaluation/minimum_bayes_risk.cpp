#include "transformer/evaluation/minimum_bayes_risk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/overloaded.h"

namespace transformer {

namespace {

/// A sentence's n-grams of one order by number, ascending.
struct Order {
  std::vector<std::pair<size_t, int64_t>> counts;
  int64_t total = 0;
};

int64_t matches(const Order& a, const Order& b) {
  int64_t sum = 0;
  for (auto one = a.counts.begin(), other = b.counts.begin(); one != a.counts.end() && other != b.counts.end();) {
    if (one->first == other->first) {
      sum += std::min(one->second, other->second);
      ++one;
      ++other;
    } else if (one->first < other->first) {
      ++one;
    } else {
      ++other;
    }
  }
  return sum;
}

class Judge {
 public:
  Judge(const std::vector<std::string>& sentences, const Utility& utility) : utility_(utility) {
    std::unordered_map<std::string, size_t> numbers;
    for (const auto& sentence : sentences) {
      const auto orders =
          std::visit(Overloaded{[&](const ChrfOptions& options) { return chrf_ngrams(sentence, options); },
                                [&](const BleuOptions& options) { return bleu_ngrams(sentence, options); }},
                     utility);
      auto& counted = sentences_.emplace_back();
      for (const auto& counts : orders) {
        auto& order = counted.emplace_back();
        for (const auto& [ngram, count] : counts) {
          order.counts.emplace_back(numbers.try_emplace(ngram, numbers.size()).first->second, count);
          order.total += count;
        }
        std::sort(order.counts.begin(), order.counts.end());
      }
    }
    if (auto* bleu = std::get_if<BleuOptions>(&utility_)) bleu->effective_order = true;
  }

  /// Rows are those of chrf_statistics and bleu_statistics.
  double score(size_t hypothesis, size_t reference) {
    const auto& ours = sentences_[hypothesis];
    const auto& theirs = sentences_[reference];
    row_.clear();
    if (const auto* chrf = std::get_if<ChrfOptions>(&utility_)) {
      for (size_t n = 0; n < ours.size(); ++n) {
        const auto total = theirs[n].counts.empty() ? 0 : ours[n].total;
        row_.insert(row_.end(), {total, theirs[n].total, matches(ours[n], theirs[n])});
      }
      return chrf_from_statistics(row_, *chrf);
    }
    row_ = {ours.front().total, theirs.front().total};
    for (size_t n = 0; n < ours.size(); ++n) row_.push_back(matches(ours[n], theirs[n]));
    for (const auto& order : ours) row_.push_back(order.total);
    return bleu_from_statistics(row_, std::get<BleuOptions>(utility_)).score;
  }

 private:
  Utility utility_;
  std::vector<std::vector<Order>> sentences_;
  std::vector<int64_t> row_;
};

}  // namespace

std::vector<double> expected_utilities(const std::vector<std::string>& hypotheses, std::span<const double> weights,
                                       const Utility& utility) {
  if (!weights.empty() && weights.size() != hypotheses.size()) {
    throw Error("", fmt::format("{} hypotheses but {} weights", hypotheses.size(), weights.size()),
                "give one for each hypothesis");
  }
  for (const double weight : weights) {
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw Error("", fmt::format("a weight of {} is not possible", weight), "give 0 or more");
    }
  }
  // The same text several times, as samples are, is judged once.
  std::unordered_map<std::string, size_t> known;
  std::vector<std::string> texts;
  std::vector<double> shares;
  std::vector<size_t> places;  // of each hypothesis among them
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const auto [place, fresh] = known.try_emplace(hypotheses[i], texts.size());
    if (fresh) {
      texts.push_back(hypotheses[i]);
      shares.push_back(0);
    }
    shares[place->second] += weights.empty() ? 1 : weights[i];
    places.push_back(place->second);
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (!texts.empty() && !(sum > 0)) throw Error("", "all weights are 0", "give at least one that is more");
  Judge judge(texts, utility);
  std::vector<double> means(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t k = 0; k < texts.size(); ++k) means[i] += shares[k] / sum * judge.score(i, k);
  }
  std::vector<double> utilities;
  for (const size_t place : places) utilities.push_back(means[place]);
  return utilities;
}

}  // namespace transformer
