#pragma once

#include <fmt/format.h>

#include <string>
#include <variant>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/base/settings.h"

namespace transformer {

/// Throws Error naming the first number of `settings` that its declaration does not allow, as "section.setting": for
/// settings that no file or command line gave, and that therefore nobody has checked.
template <class S>
void check_ranges(const std::string& section, const S& settings) {
  S copy = settings;
  std::vector<SettingField> fields;
  Fields<S> described(copy, fields);
  S::describe(described);
  for (const auto& field : fields) {
    const auto refuse = [&](const auto& number) {
      throw Error(fmt::format("{}.{}", section, field.name),
                  fmt::format("{} is out of range; expected {}", number, field.range.text()));
    };
    if (const auto* integer = std::get_if<int64_t*>(&field.target)) {
      if (!field.range.contains(static_cast<double>(**integer))) refuse(**integer);
    } else if (const auto* natural = std::get_if<uint64_t*>(&field.target)) {
      if (!field.range.contains(static_cast<double>(**natural))) refuse(**natural);
    } else if (const auto* real = std::get_if<double*>(&field.target)) {
      if (!field.range.contains(**real)) refuse(**real);
    } else if (const auto* list = std::get_if<std::vector<double>*>(&field.target)) {
      for (const double number : **list) {
        if (!field.range.contains(number)) refuse(number);
      }
    }
  }
}

}  // namespace transformer
