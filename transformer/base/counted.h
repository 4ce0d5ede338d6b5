#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace transformer {

/// For messages: "1 line", "2 lines"; `noun` is one that takes an s.
std::string counted(std::integral auto count, std::string_view noun) {
  std::string text = std::to_string(count) + ' ';
  text += noun;
  if (count != 1) text += 's';
  return text;
}

}  // namespace transformer
