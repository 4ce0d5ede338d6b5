#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/setting_value.h"

namespace transformer {

/// For CLI::Option::transform: numbers are spelled as in settings, in decimal digits and whole ones as 1e5, too, and
/// are in `range`, of which what is not a number never is. `description`: of the range, for --help and messages.
template <class Number>
CLI::Validator spelled_number(const Range& range, std::string description) {
  using Target = std::conditional_t<std::is_floating_point_v<Number>, double,
                                    std::conditional_t<std::is_unsigned_v<Number>, uint64_t, int64_t>>;
  return CLI::Validator(
      [range](std::string& text) {
        Target number = 0;
        SettingField field;
        field.range = range;
        field.target = &number;
        try {
          assign(field, "", {.kind = SettingValue::Kind::scalar, .texts = {text}}, "");
        } catch (const Error&) {
          return std::string("is no such number");  // the message is made of the description
        }
        // 010 would be eight to who converts it.
        text = fmt::format("{}", number);
        return std::string();
      },
      std::move(description));
}

/// Numbers from `least` to `most`, both included.
template <class Number>
CLI::Validator number_between(Number least, Number most) {
  return spelled_number<Number>(between(static_cast<double>(least), static_cast<double>(most)),
                                fmt::format("{} in [{} - {}]", CLI::detail::type_name<Number>(), least, most));
}

}  // namespace transformer
