#pragma once

#include <cstdint>
#include <string>

#include "apps/line_input.h"

namespace transformer {

/// A line of an n-best list: index ||| text ||| score.
struct Listed {
  int64_t index = 0;
  std::string text;
  double score = 0;
};

/// Line `number` of `input`. Throws Error for one that is none of a list.
Listed read_listed(const LineInput& input, int64_t number, const std::string& line);

}  // namespace transformer
