#include "transformer/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace transformer {

namespace {

constexpr float lowest = -std::numeric_limits<float>::infinity();

}  // namespace

void best_of(std::span<const float> scores, int64_t count, std::vector<std::pair<float, int64_t>>& best) {
  best.clear();
  const auto better = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  const auto size = static_cast<int64_t>(scores.size()), wanted = std::min(count, size);
  if (wanted < 1) return;
  constexpr int64_t block = 64;
  float threshold = lowest;  // of what is taken up: tokens come in order, so equal ones stay out
  for (int64_t first = 0; first < size; first += block) {
    const int64_t end = std::min(first + block, size);
    int any = 0;
    for (int64_t i = first; i < end; ++i) any |= static_cast<int>(scores[static_cast<size_t>(i)] > threshold);
    if (any == 0) continue;
    for (int64_t i = first; i < end; ++i) {
      const float score = scores[static_cast<size_t>(i)];
      if (!(score > threshold)) continue;
      if (static_cast<int64_t>(best.size()) == wanted) {
        std::pop_heap(best.begin(), best.end(), better);
        best.pop_back();
      }
      best.emplace_back(score, i);
      std::push_heap(best.begin(), best.end(), better);
      if (static_cast<int64_t>(best.size()) == wanted) threshold = best.front().first;
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
}

int64_t draw(std::span<const float> logits, const DecodingSettings& settings, double uniform) {
  thread_local std::vector<std::pair<float, int64_t>> best;
  const auto scale = static_cast<float>(1 / settings.temperature);
  float maximum = lowest;
  for (const float logit : logits) maximum = logit > maximum ? logit : maximum;
  if (maximum == lowest) return -1;
  const auto weight = [&](float logit) { return std::exp((logit - maximum) * scale); };
  const auto least = static_cast<float>(settings.min_p);  // the likeliest has a weight of 1

  if (settings.top_k == 0 && settings.top_p == 1) {
    // Blocks of weights are summed once, and only the one where the draw falls is walked through again.
    thread_local std::vector<double> sums;
    sums.clear();
    constexpr size_t block = 256;
    double total = 0;
    const auto counted = [&](float logit) {
      const float value = weight(logit);
      return value >= least ? value : 0.0F;
    };
    for (size_t first = 0; first < logits.size(); first += block) {
      float sum = 0;
      for (size_t i = first; i < std::min(first + block, logits.size()); ++i) sum += counted(logits[i]);
      sums.push_back(total += static_cast<double>(sum));
    }
    const double target = uniform * total;
    const auto place = static_cast<size_t>(std::upper_bound(sums.begin(), sums.end(), target) - sums.begin());
    const size_t chosen = std::min(place, sums.size() - 1);
    double reached = chosen == 0 ? 0 : sums[chosen - 1];
    int64_t last = -1;  // that can be drawn: rounding may leave the target behind the end
    for (size_t i = chosen * block; i < std::min((chosen + 1) * block, logits.size()); ++i) {
      const float value = counted(logits[i]);
      if (value == 0) continue;
      last = static_cast<int64_t>(i);
      reached += static_cast<double>(value);
      if (reached > target) break;
    }
    if (last >= 0) return last;
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }

  // The likeliest, more and more of them, until there are enough.
  const auto size = static_cast<int64_t>(logits.size());
  const int64_t most = settings.top_k == 0 ? size : std::min(settings.top_k, size);
  double total = 0;
  size_t kept = 0;
  double all = 0;  // the nucleus is a share of what top_k leaves
  if (settings.top_k == 0) {
    for (const float logit : logits) all += static_cast<double>(weight(logit));
  }
  for (int64_t count = settings.top_k == 0 ? std::min<int64_t>(64, most) : most;; count = std::min(count * 8, most)) {
    best_of(logits, count, best);
    if (settings.top_k > 0) {
      all = 0;
      for (const auto& [logit, token] : best) all += static_cast<double>(weight(logit));
    }
    total = 0;
    kept = 0;
    while (kept < best.size() && (kept == 0 || total < settings.top_p * all)) {
      total += static_cast<double>(weight(best[kept++].first));
    }
    if (kept < best.size() || count == most || static_cast<int64_t>(best.size()) < count) break;
  }
  while (kept > 1 && weight(best[kept - 1].first) < least) --kept;
  total = 0;
  for (size_t i = 0; i < kept; ++i) total += static_cast<double>(weight(best[i].first));
  const double target = uniform * total;
  double reached = 0;
  size_t chosen = 0;
  for (; chosen + 1 < kept; ++chosen) {
    reached += static_cast<double>(weight(best[chosen].first));
    if (reached > target) break;
  }
  return best[chosen].second;
}

}  // namespace transformer
