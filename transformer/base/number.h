#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace transformer {

/// The number that `text` is, all of it, in decimal digits; nothing where it is none, or one that a Number cannot hold.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace transformer
