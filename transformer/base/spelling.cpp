#include "transformer/base/spelling.h"

#include <fmt/format.h>

#include <algorithm>

namespace transformer {

size_t edit_distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<size_t>> cost(from.size() + 1, std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i) {
    for (size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t change = from[i - 1] == to[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[from.size()][to.size()];
}

size_t largest_slip(const std::string& word) {
  return std::max<size_t>(1, std::min<size_t>(3, word.size() / 3));
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() > longest_word) return "";
  std::string best;
  size_t best_distance = largest_slip(word) + 1;
  for (const auto& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty() || word.size() < shortest_beginning) return best;
  for (const auto& candidate : known) {
    if (!candidate.starts_with(word)) continue;
    if (!best.empty()) return "";
    best = candidate;
  }
  return best;
}

std::string did_you_mean(const std::string& near, const std::string& otherwise) {
  return near.empty() ? otherwise : fmt::format("did you mean '{}'?", near);
}

}  // namespace transformer
