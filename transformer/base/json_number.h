#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace transformer {

/// The whole number that a JSON value is, of nlohmann's kinds; none of what is no number, has a fraction, or is none
/// that an int64_t holds. Numbers of files that others may have written are read by this: nlohmann's get<int64_t>()
/// converts 1e300 as well, which C++ does not define.
template <class Json>
std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.template get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.template get<int64_t>();
  if (!value.is_number()) return std::nullopt;
  const auto number = value.template get<double>();
  constexpr double beyond = 9223372036854775808.0;  // 2^63
  if (!(number >= -beyond && number < beyond) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

/// The same; throws what nlohmann throws for a value of another type than is asked for.
template <class Json>
int64_t whole_number_of(const Json& value) {
  const auto number = whole_number(value);
  if (!number) throw Json::type_error::create(302, "type must be a whole number", &value);
  return *number;
}

}  // namespace transformer
