#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace transformer {

/// `text` with `to` in the place of every `from`, which is not empty: from left to right, and not again in what came.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t start = 0;
  for (size_t at; (at = text.find(from, start)) != std::string_view::npos; start = at + from.size()) {
    result.append(text, start, at - start).append(to);
  }
  return result.append(text, start);
}

}  // namespace transformer
