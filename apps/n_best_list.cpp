#include "apps/n_best_list.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "transformer/base/error.h"

namespace transformer {

Listed read_listed(const LineInput& input, int64_t number, const std::string& line) {
  constexpr std::string_view separator = " ||| ";
  const auto fail = [&](const std::string& what) {
    throw Error(input.where(number), what, "expected `INDEX ||| TEXT ||| SCORE`, as `translate --n-best` writes it");
  };
  const auto first = line.find(separator), last = line.rfind(separator);
  if (first == std::string::npos || first == last) fail("is no line of an n-best list");
  Listed listed;
  // An empty translation may have one blank for both separators.
  const size_t begin = std::min(first + separator.size(), last);
  listed.text = line.substr(begin, last - begin);
  const std::string_view index = std::string_view(line).substr(0, first),
                         score = std::string_view(line).substr(last + separator.size());
  const auto whole = [](const std::from_chars_result& result, std::string_view text) {
    return result.ec == std::errc() && result.ptr == text.data() + text.size();
  };
  if (!whole(std::from_chars(index.data(), index.data() + index.size(), listed.index), index) || listed.index < 0) {
    fail("does not begin with the number of a line, counted from 0");
  }
  if (!whole(std::from_chars(score.data(), score.data() + score.size(), listed.score), score) ||
      !std::isfinite(listed.score)) {
    fail("does not end with a number");
  }
  return listed;
}

}  // namespace transformer
