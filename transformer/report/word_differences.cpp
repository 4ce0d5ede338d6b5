#include "transformer/report/word_differences.h"

#include <algorithm>
#include <cstdint>

#include "transformer/base/unicode.h"

namespace transformer {

std::vector<WordStretch> word_differences(std::string_view first, std::string_view second, size_t most_cells) {
  const auto a = split_words(first), b = split_words(second);
  std::vector<WordStretch> stretches;
  const auto add = [&](WordStretch::In in, std::string_view word) {
    if (stretches.empty() || stretches.back().in != in) {
      stretches.push_back({in, std::string(word)});
    } else {
      stretches.back().words.append(" ").append(word);
    }
  };
  size_t head = 0, tail = 0;
  const size_t shorter = std::min(a.size(), b.size());
  while (head < shorter && a[head] == b[head]) ++head;
  while (tail < shorter - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  for (size_t i = 0; i < head; ++i) add(WordStretch::In::both, a[i]);

  // common[i][j]: the longest common subsequence of what follows i in a and j in b.
  const size_t n = a.size() - head - tail, m = b.size() - head - tail;
  const bool compared = n == 0 || m <= most_cells / n;
  std::vector<uint32_t> common(compared ? (n + 1) * (m + 1) : 0, 0);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return common[i * (m + 1) + j]; };
  if (compared) {
    for (size_t i = n; i-- > 0;) {
      for (size_t j = m; j-- > 0;) {
        at(i, j) = a[head + i] == b[head + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
      }
    }
  }
  size_t i = 0, j = 0, of_second = 0;
  const auto put_second = [&] {  // after all that the first alone has
    for (; of_second < j; ++of_second) add(WordStretch::In::second, b[head + of_second]);
  };
  while (i < n || j < m) {
    if (compared && i < n && j < m && a[head + i] == b[head + j]) {
      put_second();
      add(WordStretch::In::both, a[head + i]);
      ++i, ++j, ++of_second;
    } else if (i < n && (!compared || j == m || at(i + 1, j) >= at(i, j + 1))) {
      add(WordStretch::In::first, a[head + i++]);
    } else {
      ++j;
    }
  }
  put_second();
  for (size_t k = a.size() - tail; k < a.size(); ++k) add(WordStretch::In::both, a[k]);
  return stretches;
}

}  // namespace transformer
