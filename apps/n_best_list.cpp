#include "apps/n_best_list.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "transformer/base/error.h"
#include "transformer/base/number.h"

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
  listed.index = number_in<int64_t>(index).value_or(-1);
  if (listed.index < 0) fail("does not begin with the number of a line, counted from 0");
  const auto value = number_in<double>(score);
  if (!value || !std::isfinite(*value)) fail("does not end with a number");
  listed.score = *value;
  return listed;
}

}  // namespace transformer
