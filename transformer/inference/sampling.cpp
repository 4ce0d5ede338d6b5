#include "transformer/inference/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "transformer/inference/packed_matrix.h"

namespace transformer {

void best_of(std::span<const float> scores, int64_t count, std::vector<std::pair<float, int64_t>>& best) {
  best.clear();
  const auto better = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  const auto size = static_cast<int64_t>(scores.size()), wanted = std::min(count, size);
  if (wanted < 1) return;
  constexpr int64_t block = 64;
  float threshold = impossible_logit;  // of what is taken up: tokens come in order, so equal ones stay out
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

double log_sum_exp(std::span<const float> scores) {
  const Kernels& kernels = *available_kernels().front();
  const float maximum = kernels.largest(scores.data(), std::ssize(scores));
  if (maximum == impossible_logit) return static_cast<double>(maximum);
  constexpr size_t block = 256;
  std::array<float, block> weights;
  double sum = 0;
  for (size_t first = 0; first < scores.size(); first += block) {
    const auto some = scores.subspan(first, std::min(block, scores.size() - first));
    sum += static_cast<double>(kernels.exponentials(some.data(), std::ssize(some), maximum, 1, weights.data()));
  }
  return static_cast<double>(maximum) + std::log(sum);
}

int64_t draw(std::span<const float> logits, const DecodingSettings& settings, double uniform) {
  const Kernels& kernels = *available_kernels().front();
  thread_local std::vector<std::pair<float, int64_t>> best;
  thread_local std::vector<float> weights;
  const auto scale = static_cast<float>(1 / settings.temperature);
  const float maximum = kernels.largest(logits.data(), std::ssize(logits));
  if (maximum == impossible_logit) return -1;
  const auto least = static_cast<float>(settings.min_p);  // the likeliest has a weight of 1

  // The weight of every token, 0 where it is below `bound`; returns their sum, with all before it after each block.
  thread_local std::vector<double> sums;
  constexpr size_t block = 256;
  const auto weigh = [&](float bound) {
    weights.resize(logits.size());
    sums.clear();
    double total = 0;
    for (size_t first = 0; first < logits.size(); first += block) {
      const auto some = std::span(weights).subspan(first, std::min(block, logits.size() - first));
      float sum = kernels.exponentials(logits.data() + first, std::ssize(some), maximum, scale, some.data());
      if (bound > 0) {
        sum = 0;
        for (float& weight : some) sum += weight = weight >= bound ? weight : 0;
      }
      sums.push_back(total += static_cast<double>(sum));
    }
    return total;
  };

  if (settings.top_k == 0 && settings.top_p == 1) {
    const double target = uniform * weigh(least);
    // Only the block where the draw falls is walked through.
    const auto place = static_cast<size_t>(std::upper_bound(sums.begin(), sums.end(), target) - sums.begin());
    const size_t chosen = std::min(place, sums.size() - 1);
    double reached = chosen == 0 ? 0 : sums[chosen - 1];
    int64_t last = -1;  // that can be drawn: rounding may leave the target behind the end
    for (size_t i = chosen * block; i < std::min((chosen + 1) * block, logits.size()); ++i) {
      if (weights[i] == 0) continue;
      last = static_cast<int64_t>(i);
      reached += static_cast<double>(weights[i]);
      if (reached > target) break;
    }
    if (last >= 0) return last;
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }

  // The likeliest, more and more of them, until there are enough.
  const auto weight = [&](float logit) { return static_cast<double>(std::exp((logit - maximum) * scale)); };
  const auto size = static_cast<int64_t>(logits.size());
  const int64_t most = settings.top_k == 0 ? size : std::min(settings.top_k, size);
  size_t kept = 0;
  double all = settings.top_k == 0 ? weigh(0) : 0;  // the nucleus is a share of what top_k leaves
  double total = 0;
  for (int64_t count = settings.top_k == 0 ? std::min<int64_t>(64, most) : most;; count = std::min(count * 8, most)) {
    best_of(logits, count, best);
    if (settings.top_k > 0) {
      all = 0;
      for (const auto& [logit, token] : best) all += weight(logit);
    }
    total = 0;
    kept = 0;
    while (kept < best.size() && (kept == 0 || total < settings.top_p * all)) total += weight(best[kept++].first);
    if (kept < best.size() || count == most || static_cast<int64_t>(best.size()) < count) break;
  }
  while (kept > 1 && weight(best[kept - 1].first) < static_cast<double>(least)) --kept;
  total = 0;
  for (size_t i = 0; i < kept; ++i) total += weight(best[i].first);
  const double target = uniform * total;
  double reached = 0;
  size_t chosen = 0;
  for (; chosen + 1 < kept; ++chosen) {
    reached += weight(best[chosen].first);
    if (reached > target) break;
  }
  return best[chosen].second;
}

}  // namespace transformer
