#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/setting_value.h"

namespace transformer {

/// For CLI::Option::transform: truths and numbers are spelled as in settings, these in decimal digits and whole ones as
/// 1e5, too, and in `range`, of which what is not a number never is. `description`: of the range, for --help and
/// messages.
template <class Value>
CLI::Validator spelled(const Range& range, std::string description) {
  using Number = std::conditional_t<std::is_floating_point_v<Value>, double,
                                    std::conditional_t<std::is_unsigned_v<Value>, uint64_t, int64_t>>;
  using Target = std::conditional_t<std::is_same_v<Value, bool>, bool, Number>;
  return CLI::Validator(
      [range](std::string& text) {
        Target value{};
        SettingField field;
        field.range = range;
        field.target = &value;
        try {
          assign(field, "", {.kind = SettingValue::Kind::scalar, .texts = {text}}, "");
        } catch (const Error&) {
          return std::string("is no such value");  // the message is made of the description
        }
        // 010 would be eight to who converts it.
        text = fmt::format("{}", value);
        return std::string();
      },
      std::move(description));
}

/// Numbers from `least` to `most`, both included.
template <class Number>
CLI::Validator number_between(Number least, Number most) {
  return spelled<Number>(between(static_cast<double>(least), static_cast<double>(most)),
                         fmt::format("{} in [{} - {}]", CLI::detail::type_name<Number>(), least, most));
}

}  // namespace transformer
