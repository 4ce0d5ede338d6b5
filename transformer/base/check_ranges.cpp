#include "transformer/base/check_ranges.h"

#include <fmt/format.h>

#include <variant>

#include "transformer/base/error.h"

namespace transformer {

void check_ranges(const std::string& section, const std::vector<SettingField>& fields) {
  for (const auto& field : fields) {
    const auto check = [&](const auto& number) {
      if (field.range.contains(static_cast<long double>(number))) return;
      throw Error(fmt::format("{}.{}", section, field.name),
                  fmt::format("{} is out of range; expected {}", number, field.range.text()));
    };
    if (const auto* integer = std::get_if<int64_t*>(&field.target)) {
      check(**integer);
    } else if (const auto* natural = std::get_if<uint64_t*>(&field.target)) {
      check(**natural);
    } else if (const auto* real = std::get_if<double*>(&field.target)) {
      check(**real);
    } else if (const auto* list = std::get_if<std::vector<double>*>(&field.target)) {
      for (const double number : **list) check(number);
    }
  }
}

}  // namespace transformer
